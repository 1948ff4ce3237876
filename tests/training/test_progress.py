"""The line that says how far a training is."""

from casebook.training.progress import Progress


def test_the_line_of_the_last_step_stays_when_a_training_has_been_measured():
    shown, progress = [], Progress("run")
    progress.start(0, 2)
    progress.renew = shown.append  # as in a notebook
    progress.update(2, {"loss": 0.0, "reward": 0.5, "frac_reward_zero_std": 0.25})
    progress.measuring("after")(8, 8)
    progress.close()
    last = "run: step 2/2, reward 0.50, silent groups 25%"
    assert shown == [last + ", 0:00 left", "run: measuring after, 8 of 8 completions", last]
