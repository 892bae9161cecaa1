// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	tunnelv1alpha1 "github.com/fairlead-dev/fairlead/pkg/apis/tunnel/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	page = 500
	// churn is how many connections end and begin in a second.
	churn = 1000
	lists = 20
)

// pages lists connections in pages while these come and go.
func (b *bench) pages(ctx context.Context) error {
	src := newSource("paged", 2)
	src.connect(b.connections, b.connections)
	url, stop, err := src.serve(ctx, b.dir)
	if err != nil {
		return err
	}
	defer stop()
	s, err := b.alone(ctx, "paged", "--konnectivity-server="+url)
	if err != nil {
		return err
	}
	defer s.kill()
	busy, quiet := context.WithCancel(ctx)
	defer quiet()
	go func() {
		for wait(busy, 10*time.Millisecond) == nil {
			src.connect(churn/100, b.connections)
		}
	}()
	var took, first []time.Duration
	wrong := 0
	for range lists {
		all, one, err := b.list(ctx, s)
		if err != nil {
			fmt.Println(err)
			wrong++
		}
		took, first = append(took, all), append(first, one)
		if err := wait(ctx, time.Second); err != nil { // the next list is of a newer moment
			return err
		}
	}
	what := fmt.Sprintf("%d connections in pages of %d, %d of them new each second: ", b.connections, page, churn)
	goal(b, what+"inconsistent lists of "+fmt.Sprint(lists), wrong, 0)
	row(what+"first page", "p50 %v, p99 %v", quantile(first, 0.5), quantile(first, 0.99))
	row(what+"all pages", "p50 %v, p99 %v", quantile(took, 0.5), quantile(took, 0.99))
	return nil
}

// list reads all pages of one list, which must be of one moment: one resource version, each connection once, and as many
// as the first page says.
func (b *bench) list(ctx context.Context, s *server) (all, first time.Duration, err error) {
	start := time.Now()
	next, version, want := "", "", int64(0)
	seen := map[string]bool{}
	for {
		body, err := s.get(ctx, fmt.Sprintf("%s/tunnelconnections?limit=%d&continue=%s", tunnelv1alpha1.Path, page, next))
		if err != nil {
			return 0, 0, err
		}
		var list metav1.PartialObjectMetadataList
		if err := json.Unmarshal(body, &list); err != nil {
			return 0, 0, err
		}
		if next == "" {
			first, version, want = time.Since(start), list.ResourceVersion, int64(len(list.Items))
			if list.RemainingItemCount != nil {
				want += *list.RemainingItemCount
			}
		}
		for _, o := range list.Items {
			if seen[o.Name] {
				return 0, 0, fmt.Errorf("%s is on two pages", o.Name)
			}
			seen[o.Name] = true
		}
		if list.ResourceVersion != version {
			return 0, 0, fmt.Errorf("a page has resource version %s, the first one %s", list.ResourceVersion, version)
		}
		if next = list.Continue; next == "" {
			break
		}
	}
	if int64(len(seen)) != want || len(seen) < b.connections {
		return 0, 0, fmt.Errorf("%d connections, not the %d of the first page or %d in all", len(seen), want, b.connections)
	}
	return time.Since(start), first, nil
}
