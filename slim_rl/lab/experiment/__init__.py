"""An experiment: contrasts, figures and page, over seeds and games."""
