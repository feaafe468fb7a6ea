"""Traces that the tests share."""

import pathlib

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def mysql():
    """A real trace: a MySQL server, 80 794 requests."""
    return ROOT / "fixtures" / "linux-mysql.load.zst"


@pytest.fixture
def little(tmp_path):
    """A trace in our own CSV: two devices, three requests."""
    file = tmp_path / "little.csv"
    file.write_text(
        "time_ns,device,op,offset,length,class,flags,file_size,latency_ns\n"
        "100,7,read,0,4096,1,0,,7000\n"
        "200,3,write,8192,512,0,1,12345,\n"
        "300,7,flush,0,0,0,0,,\n"
    )
    return file
