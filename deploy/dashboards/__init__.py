"""The dashboards of the Helm chart, as descriptions: ``python -m deploy.dashboards`` writes them."""
