"""The dashboards of deploy/grafana, as descriptions: ``python -m deploy.dashboards`` writes them."""
