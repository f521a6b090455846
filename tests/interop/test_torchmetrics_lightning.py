"""The torchmetrics in a validation loop of Lightning under DDP, on two gloo processes."""

import pickle

import pytest
import torch

from tests.interop.test_torchmetrics import close


@pytest.mark.ci
@pytest.mark.filterwarnings("ignore")  # Lightning's and torch's own, about workers and ports
def test_two_processes_of_lightning_equal_one(tmp_path):
    lightning = pytest.importorskip("lightning")
    from tests.interop.judge import Judge

    out = str(tmp_path / "found")
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=2,
        # From the server of tests/processes.py, which has imported torch.
        strategy=lightning.pytorch.strategies.DDPStrategy(start_method="forkserver"),
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
        default_root_dir=tmp_path,
    )
    loader = torch.utils.data.DataLoader(torch.arange(600), batch_size=100)
    trainer.validate(Judge(out), loader, verbose=False)
    for rank in (0, 1):
        found = pickle.loads((tmp_path / f"found.{rank}").read_bytes())
        close(found)
        assert found["rows here"] == 300
