import pytest

from simulator.literal import EngineUnderTest, ReferenceUnderTest


@pytest.fixture(params=[EngineUnderTest, ReferenceUnderTest], ids=["engine", "reference"])
def simulator(request):
    return request.param
