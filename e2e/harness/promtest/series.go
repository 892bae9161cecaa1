// SPDX-License-Identifier: Apache-2.0

package promtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// Selector is a metric that an expression selects, with the labels that it matches or groups by.
type Selector struct {
	Metric string
	Labels []string
}

// node is a part of an expression as Prometheus has parsed it.
type node struct {
	Type     string
	Name     string
	Matchers []struct{ Name, Value, Type string }
	Grouping []string
	Without  bool
	Expr     *node
	LHS, RHS *node
	Args     []*node
	Param    *node
}

// selects reports whether the node selects series, now or over a range.
func (n *node) selects() bool { return n.Type == "vectorSelector" || n.Type == "matrixSelector" }

func (n *node) walk(visit func(*node)) {
	if n == nil {
		return
	}
	visit(n)
	for _, child := range append([]*node{n.Expr, n.LHS, n.RHS, n.Param}, n.Args...) {
		child.walk(visit)
	}
}

// Selectors returns what an expression selects, as Prometheus parses it.
func (s *Server) Selectors(ctx context.Context, expr string) (all []Selector, err error) {
	var tree node
	if err := s.Get(ctx, &tree, "parse_query", "query", expr); err != nil {
		return nil, err
	}
	tree.walk(func(n *node) {
		switch {
		case n.selects():
			labels := []string{}
			for _, m := range n.Matchers {
				if m.Name != "__name__" {
					labels = append(labels, m.Name)
				}
			}
			all = append(all, Selector{n.Name, labels})
		case n.Type == "aggregation":
			n.Expr.walk(func(inner *node) {
				if inner.selects() {
					all = append(all, Selector{inner.Name, n.Grouping})
				}
			})
		}
	})
	return all, nil
}

// CheckSelectors checks that the metrics that an expression selects exist, with the labels that it matches and groups by. Of a metric that may
// be empty, a program has to declare the name at least. With only, other metrics are left out.
func (s *Server) CheckSelectors(ctx context.Context, expr string, mayBeEmpty, only func(metric string) bool) error {
	selectors, err := s.Selectors(ctx, expr)
	if err != nil {
		return err
	}
	var faults []error
	for _, one := range selectors {
		if only == nil || only(one.Metric) {
			faults = append(faults, s.check(ctx, one, mayBeEmpty(one.Metric)))
		}
	}
	return errors.Join(faults...)
}

func (s *Server) check(ctx context.Context, one Selector, mayBeEmpty bool) error {
	var series []map[string]string
	if err := s.Get(ctx, &series, "series", "match[]", one.Metric); err != nil {
		return err
	}
	if len(series) == 0 {
		var declared []struct{ Metric string }
		if err := s.Get(ctx, &declared, "targets/metadata", "metric", one.Metric); err != nil {
			return err
		}
		if len(declared) == 0 {
			return fmt.Errorf("no program has metric %s", one.Metric)
		}
		if !mayBeEmpty {
			return fmt.Errorf("metric %s has no series: cause one, or say that it may be empty", one.Metric)
		}
		return nil
	}
	for _, label := range one.Labels {
		if !slices.ContainsFunc(series, func(s map[string]string) bool { _, ok := s[label]; return ok }) {
			return fmt.Errorf("metric %s has no label %s, but for example %v", one.Metric, label, series[0])
		}
	}
	return nil
}
