"""The command `corpusmill fake-endpoint`: the endpoint of this package, alone in a process."""

from __future__ import annotations

import click

_SHARES = "KIND=SHARE"


def _shares(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, float]:
    """Read options such as `429=0.05`."""
    shares: dict[str, float] = {}
    for value in values:
        kind, separator, share = value.partition("=")
        try:
            shares[kind.strip()] = float(share)
        except ValueError:
            separator = ""
        if not separator:
            raise click.BadParameter(f"{value!r} is not of the form {_SHARES}", context, parameter)
    return shares


@click.command(
    "fake-endpoint",
    short_help="Run a chat-completions server on loopback that fails as told.",
    context_settings={"show_default": True},
)
@click.option("--host", default="127.0.0.1", help="Address to listen at.")
@click.option("--port", default=8000, type=click.IntRange(0, 65_535), help="Port; 0 for one that is free.")
@click.option("--seed", default=0, help="What latencies and faults are drawn by.")
@click.option("--api-key", envvar="CORPUSMILL_FAKE_API_KEY", show_envvar=True, help="Key to insist on.")
@click.option("--model", "models", multiple=True, help="A model that exists; repeatable. Default: any.")
@click.option("--context-tokens", default=65_536, help="Tokens of prompt and answer together.")
@click.option("--strict-context", is_flag=True, help="Refuse what could exceed the context.")
@click.option("--gzip", is_flag=True, help="Compress whole answers for clients that take it.")
@click.option("--latency", default=0.0, help="Mean seconds to an answer.")
@click.option("--latency-sigma", default=0.0, help="Sigma of a lognormal latency; 0 for a fixed one.")
@click.option("--straggler-share", default=0.0, help="Share of the answers that take much longer.")
@click.option("--straggler-seconds", default=30.0, help="What those take.")
@click.option("--chunk-seconds", default=0.0, help="Seconds between two events of a stream.")
@click.option(
    "--fault", "faults", multiple=True, metavar=_SHARES, callback=_shares, help="Share of attempts."
)
@click.option(
    "--permanent-fault",
    "permanent",
    multiple=True,
    metavar=_SHARES,
    callback=_shares,
    help="Share of requests.",
)
@click.option("--first-attempts", type=int, help="Let only so many attempts at a request meet a --fault.")
@click.option("--retry-after", default="1", help="Retry-After of the fault 429, as it stands on the wire.")
@click.option("--stall-seconds", default=600.0, help="Bound of the fault stall.")
@click.option("--requests-per-minute", type=int, help="Rate limit.")
@click.option("--tokens-per-minute", type=int, help="Rate limit.")
@click.option("--requests-per-day", type=int, help="Rate limit.")
@click.option("--burst", type=int, help="Requests that a full bucket holds. Default: a minute's worth.")
@click.option("--token-burst", type=int, help="Tokens that a full bucket holds. Default: a minute's worth.")
@click.option(
    "--window", type=click.Choice(["bucket", "fixed"]), default="bucket", help="Kind of rate limit."
)
@click.option("--list-faults", is_flag=True, help="Print the kinds of fault and exit.")
def fake_endpoint_command(  # noqa: PLR0917 (click passes them by name)
    host: str,
    port: int,
    seed: int,
    api_key: str | None,
    models: tuple[str, ...],
    context_tokens: int,
    strict_context: bool,  # noqa: FBT001
    gzip: bool,  # noqa: FBT001
    latency: float,
    latency_sigma: float,
    straggler_share: float,
    straggler_seconds: float,
    chunk_seconds: float,
    faults: dict[str, float],
    permanent: dict[str, float],
    first_attempts: int | None,
    retry_after: str,
    stall_seconds: float,
    requests_per_minute: int | None,
    tokens_per_minute: int | None,
    requests_per_day: int | None,
    burst: int | None,
    token_burst: int | None,
    window: str,
    list_faults: bool,  # noqa: FBT001
) -> None:
    """Run a chat-completions server on loopback, for tests and demos.

    It prints its base URL when it is ready and ends on SIGINT or SIGTERM. GET /stats tells what it counted,
    PUT /settings changes latency, faults and limits while it runs.
    """
    from corpusmill.testing.faults import KINDS, Faults
    from corpusmill.testing.latency import Latency
    from corpusmill.testing.limits import RateLimits

    if list_faults:
        for kind, meaning in KINDS.items():
            click.echo(f"{kind:20} {meaning}")
        return
    try:
        from corpusmill.testing import FakeEndpoint, serve
    except ModuleNotFoundError as error:
        raise click.ClickException(str(error)) from error
    limited = requests_per_minute or tokens_per_minute or requests_per_day
    try:
        endpoint = FakeEndpoint(
            host=host,
            port=port,
            seed=seed,
            api_key=api_key,
            models=models or None,
            context_tokens=context_tokens,
            strict_context=strict_context,
            gzip=gzip,
            latency=Latency(
                mean=latency,
                sigma=latency_sigma,
                straggler_share=straggler_share,
                straggler_seconds=straggler_seconds,
                chunk_seconds=chunk_seconds,
            ),
            faults=Faults(
                shares=faults,
                permanent=permanent,
                first_attempts=first_attempts,
                retry_after=retry_after,
                stall_seconds=stall_seconds,
            ),
            limits=RateLimits(
                requests_per_minute=requests_per_minute,
                tokens_per_minute=tokens_per_minute,
                requests_per_day=requests_per_day,
                burst=burst,
                token_burst=token_burst,
                window="fixed" if window == "fixed" else "bucket",
            )
            if limited
            else None,
        )
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    try:
        serve(endpoint, announce=_announce)
    except OSError as error:
        raise click.ClickException(f"cannot listen at {host}:{port}: {error.strerror}") from error


def _announce(base_url: str) -> None:
    print(base_url, flush=True)  # noqa: T201 (what a caller waits for)
