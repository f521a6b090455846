"""A weight that rises while the temperature of the penalty falls: one schedule for `fit_path` and for own loops."""

from dataclasses import dataclass

from xcal._checks import as_count, as_number

FIRST_TEMPERATURE = 2.0


@dataclass(frozen=True)
class Annealing:
    """The first epochs of a training with the X-CAL penalty: its weight rises, its temperature falls.

    A large weight from the first step on can hold a network at its start: predictions that are calibrated and tell no
    rows apart. So the weight begins at 0 and rises in equal steps. A wide membership leaves the gradient little noise,
    and a narrow one the result little bias. So the temperature begins wide and falls by equal factors. After `epochs`
    epochs both are where they end, and stay there.

    Parameters
    ----------
    epochs : int
        Epochs until both have reached their end. With 0 they are there from the start.
    first_temperature, last_temperature : float
        In bin widths; the end is by default that of `XCALLoss`. A start below the end counts as the end: a temperature
        never rises.

    Examples
    --------
    >>> schedule = Annealing(epochs=10)
    >>> [schedule.weight(epoch) for epoch in (0, 5, 10, 50)]
    [0.0, 0.5, 1.0, 1.0]
    >>> [round(schedule.temperature(epoch), 2) for epoch in (0, 5, 10, 50)]
    [2.0, 1.0, 0.5, 0.5]
    """

    epochs: int
    first_temperature: float = FIRST_TEMPERATURE
    last_temperature: float = 0.5

    def __post_init__(self) -> None:
        as_count("epochs", self.epochs, at_least=0)
        for name in ("first_temperature", "last_temperature"):
            as_number(name, getattr(self, name), above=0)

    def weight(self, epoch: int) -> float:
        """Share of lambda in an epoch, counted from 0: from 0 to 1."""
        return 1.0 if epoch >= self.epochs else epoch / self.epochs

    def temperature(self, epoch: int) -> float:
        """Temperature of the membership in an epoch, counted from 0, in bin widths."""
        if epoch >= self.epochs or self.first_temperature <= self.last_temperature:
            return self.last_temperature
        factor = self.last_temperature / self.first_temperature
        return float(self.first_temperature * factor ** (epoch / self.epochs))
