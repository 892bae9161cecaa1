// SPDX-License-Identifier: Apache-2.0

// Package monitoring defines the alerts of Fairlead: their PromQL expressions, what they tell an operator, and for each
// one a fault in which it must fire and a healthy state in which it must not.
//
// Start with [Alerts], which lists them all, and [Alert]. [Rules] renders them as Prometheus rules, [PrometheusRule] as
// an object of the Prometheus Operator, and [RuleTests] as the input of "promtool test rules". The command
// deploy/tools/monitoring writes all three to deploy/monitoring, together with dashboards.
//
// The names of metrics are upstream's wherever upstream has the metric, so most alerts also work for upstream's
// konnectivity-server and konnectivity-agent: see [Alert.OwnMetrics]. The tests compare the names
// with those that the programs register.
//
// The package is pure: it reads no file and contacts no cluster.
package monitoring
