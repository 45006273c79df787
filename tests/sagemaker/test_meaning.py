"""What the errors of the services come to, in words that say what to do."""

from __future__ import annotations

import pytest
from botocore.exceptions import ClientError

from corpusmill.errors import EndpointError
from corpusmill.transform.aws import Aws


@pytest.mark.parametrize("named", [{"BucketName": "of-mine"}, {}], ids=["named", "not named"])
def test_a_bucket_that_is_missing_is_named_where_the_service_names_it(named: dict[str, str]) -> None:
    """And nothing else is to be checked."""

    def call() -> None:
        said = {"Code": "NoSuchBucket", "Message": "The specified bucket does not exist", **named}
        raise ClientError({"Error": said}, "ListObjectsV2")  # type: ignore[no-untyped-call,unused-ignore]

    with pytest.raises(EndpointError) as caught:
        Aws._call(call)
    assert ("does not exist (of-mine)" in str(caught.value)) == bool(named)
    assert str(caught.value).endswith("; create the bucket that s3 names, or mend its name")
