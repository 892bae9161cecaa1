// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// quiet is a Reporter that only records the order of the calls.
type quiet struct{ calls []string }

func (q *quiet) Begin(_ string, checks []Check) {
	q.calls = append(q.calls, fmt.Sprintf("begin %d", len(checks)))
}
func (q *quiet) Start(c Check)     { q.calls = append(q.calls, "start "+c.ID) }
func (q *quiet) Finish(r Result)   { q.calls = append(q.calls, "finish "+r.ID+" "+string(r.Status)) }
func (q *quiet) End(*Report) error { q.calls = append(q.calls, "end"); return nil }

func checkOf(id string, run func(ctx context.Context, s *Scope) error) Check {
	return Check{ID: id, Title: id, Hint: "the check's hint", Timeout: 5 * time.Second, Run: run}
}

func passes(context.Context, *Scope) error { return nil }

func TestRunGoesOnAfterFailure(t *testing.T) {
	rep := &quiet{}
	report, err := Run(t.Context(), newStubAPI(t).env(t), Options{Checks: []Check{
		checkOf("a", passes),
		checkOf("b", func(context.Context, *Scope) error { return errors.New("broken") }),
		checkOf("c", func(context.Context, *Scope) error { return WithHint(errors.New("broken too"), "its own hint") }),
		checkOf("d", func(context.Context, *Scope) error { return Skip("no parts") }),
	}}, rep)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"begin 4", "start a", "finish a ok", "start b", "finish b failed", "start c", "finish c failed", "start d", "finish d skipped", "end"}
	if diff := cmp.Diff(want, rep.calls); diff != "" {
		t.Error(diff)
	}
	if report.Success() || report.Passed != 1 || report.Failed != 2 || report.Skipped != 1 {
		t.Errorf("wrong totals: %+v", report)
	}
	if got := []string{report.Checks[1].Hint, report.Checks[2].Hint, report.Checks[3].Error}; !cmp.Equal(got, []string{"the check's hint", "its own hint", "no parts"}) {
		t.Errorf("hints and reasons: %q", got)
	}
}

func TestSkippedCountsOnlyWhenAskedFor(t *testing.T) {
	skips := Options{Checks: []Check{checkOf("a", func(context.Context, *Scope) error { return Skip("no parts") })}}
	env := newStubAPI(t).env(t)
	if report, err := Run(t.Context(), env, skips, &quiet{}); err != nil || !report.Success() {
		t.Errorf("a skipped check that was not selected by name must not fail the run: %v", err)
	}
	skips.Only = regexp.MustCompile("a")
	if report, err := Run(t.Context(), env, skips, &quiet{}); err != nil || report.Success() {
		t.Errorf("a skipped check that was selected by name must fail the run: %v", err)
	}
}

func TestSelect(t *testing.T) {
	checks := []Check{checkOf("one", passes), checkOf("two", passes), {ID: "three", Disruptive: true}}
	tests := map[string]struct {
		only       string
		disruptive bool
		want       []string
		notAsked   []string
		wantErr    string
	}{
		"quick":                  {want: []string{"one", "two"}, notAsked: []string{"three"}},
		"all":                    {disruptive: true, want: []string{"one", "two", "three"}},
		"by regexp":              {only: "^t", disruptive: true, want: []string{"two", "three"}},
		"nothing":                {only: "four", wantErr: "no check matches"},
		"disruptive not allowed": {only: "three", wantErr: "add --disruptive"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			opts := Options{Checks: checks, Disruptive: tc.disruptive}
			if tc.only != "" {
				opts.Only = regexp.MustCompile(tc.only)
			}
			got, notAsked, err := Select(opts)
			if tc.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tc.wantErr) || !errors.Is(err, ErrUsage) {
					t.Fatalf("want ErrUsage with %q, got %v", tc.wantErr, err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var ids []string
			for _, c := range got {
				ids = append(ids, c.ID)
			}
			if diff := cmp.Diff([][]string{tc.want, tc.notAsked}, [][]string{ids, notAsked}); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestAllChecksAreComplete(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range All() {
		if c.ID == "" || c.Title == "" || c.Timeout <= 0 || c.Run == nil || c.Hint == "" || seen[c.ID] {
			t.Errorf("check %q is incomplete or not unique", c.ID)
		}
		seen[c.ID] = true
	}
}

func TestTimeoutSaysWhatWasMissing(t *testing.T) {
	c := checkOf("slow", func(ctx context.Context, _ *Scope) error {
		return waitFor(ctx, time.Millisecond, func(context.Context) error { return errors.New("the thing is not there") })
	})
	res := runOne(t.Context(), newStubAPI(t).env(t), c, Options{Timeout: 20 * time.Millisecond}.withDefaults(), shared{})
	if res.Status != Failed || res.Error != "timed out after 20ms: the thing is not there" {
		t.Errorf("got %s %q", res.Status, res.Error)
	}
}

func TestNamespaceIsDeletedWhateverHappens(t *testing.T) {
	for name, end := range map[string]func(cancel context.CancelFunc) error{
		"passed":      func(context.CancelFunc) error { return nil },
		"failed":      func(context.CancelFunc) error { return errors.New("no") },
		"interrupted": func(cancel context.CancelFunc) error { cancel(); return context.Canceled },
	} {
		t.Run(name, func(t *testing.T) {
			api := newStubAPI(t)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			made := ""
			_, _ = Run(ctx, api.env(t), Options{Checks: []Check{checkOf("a", func(ctx context.Context, s *Scope) error {
				ns, err := s.Namespace(ctx)
				if err != nil {
					return err
				}
				made = ns.Name
				return end(cancel)
			})}}, &quiet{})
			if !strings.HasPrefix(made, NamespacePrefix) {
				t.Errorf("namespace %q lacks the prefix", made)
			}
			if api.find("/namespaces/"+made) != nil {
				t.Errorf("namespace %s is still there", made)
			}
		})
	}
}

func TestInterruptPutsBackAndStops(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var undone []string
	rep := &quiet{}
	report, err := Run(ctx, newStubAPI(t).env(t), Options{Checks: []Check{
		checkOf("a", func(ctx context.Context, s *Scope) error {
			for _, what := range []string{"first", "second"} {
				s.Defer(what, func(ctx context.Context) error { undone = append(undone, what); return ctx.Err() })
			}
			cancel()
			<-ctx.Done()
			return ctx.Err()
		}),
		checkOf("b", passes),
	}}, rep)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"second", "first"}, undone); diff != "" {
		t.Errorf("must undo last first: %s", diff)
	}
	if !report.Interrupted || report.Success() || report.Checks[1].Status != Skipped || report.Checks[0].Status != Failed {
		t.Errorf("report: %+v", report)
	}
	if cmp.Equal(rep.calls[len(rep.calls)-2], "finish b skipped") {
		t.Error("what was never started must not be printed")
	}
}

func TestFailedCleanupFailsTheCheck(t *testing.T) {
	for name, end := range map[string]error{"passed": nil, "skipped": Skip("no"), "failed": errors.New("bad")} {
		t.Run(name, func(t *testing.T) {
			res := runOne(t.Context(), newStubAPI(t).env(t), checkOf("a", func(_ context.Context, s *Scope) error {
				s.Defer("start the scheduler", func(context.Context) error { return errors.New("does not start") })
				return end
			}), Options{}.withDefaults(), shared{})
			if res.Status != Failed || !strings.Contains(res.Error, "clean up: start the scheduler: does not start") {
				t.Errorf("got %s %q", res.Status, res.Error)
			}
			if name == "failed" && !strings.Contains(res.Error, "bad") {
				t.Errorf("the check's own error is lost: %q", res.Error)
			}
		})
	}
}

func TestCleanupIsBounded(t *testing.T) {
	begin := time.Now()
	res := runOne(t.Context(), newStubAPI(t).env(t), checkOf("a", func(_ context.Context, s *Scope) error {
		s.Defer("wait", func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
		return nil
	}), Options{CleanupTimeout: 30 * time.Millisecond}.withDefaults(), shared{})
	if res.Status != Failed || time.Since(begin) > 30*time.Second {
		t.Errorf("%s after %s", res.Status, time.Since(begin))
	}
}

func TestHangingUndoLeavesTheOthersTheirTime(t *testing.T) {
	started := false
	res := runOne(t.Context(), newStubAPI(t).env(t), checkOf("a", func(_ context.Context, s *Scope) error {
		s.Defer("start the scheduler", func(ctx context.Context) error {
			started = ctx.Err() == nil
			return ctx.Err()
		})
		s.Defer("hang", func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
		return nil
	}), Options{CleanupTimeout: 30 * time.Millisecond}.withDefaults(), shared{})
	if !started || !strings.Contains(res.Error, "clean up: hang") || strings.Contains(res.Error, "start the scheduler") {
		t.Errorf("started %t, %q", started, res.Error)
	}
}

// TestNamespaceWhoseCreationWasInterrupted proves that a namespace is deleted although the answer to its creation never arrived.
func TestNamespaceWhoseCreationWasInterrupted(t *testing.T) {
	api := newStubAPI(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	serve := api.Config.Handler
	stored := false
	api.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost || !strings.HasSuffix(r.URL.Path, "/namespaces") {
			serve.ServeHTTP(w, r)
			return
		}
		serve.ServeHTTP(httptest.NewRecorder(), r)
		stored = api.find("/namespaces/"+NamespacePrefix) != nil
		cancel()
		<-r.Context().Done()
	})
	res := runOne(ctx, api.env(t), checkOf("a", func(ctx context.Context, s *Scope) error {
		_, err := s.Namespace(ctx)
		return err
	}), Options{}.withDefaults(), shared{})
	if left := api.find("/namespaces/" + NamespacePrefix); !stored || left != nil {
		t.Errorf("stored: %t, left behind: %v; %s", stored, left, res.Error)
	}
}

func TestRefusedNamespaceIsNotDeleted(t *testing.T) {
	api := newStubAPI(t)
	api.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fail(w, http.StatusForbidden, "may not "+r.Method) })
	res := runOne(t.Context(), api.env(t), checkOf("a", func(ctx context.Context, s *Scope) error {
		_, err := s.Namespace(ctx)
		return err
	}), Options{}.withDefaults(), shared{})
	if !strings.Contains(res.Error, "may not POST") || strings.Contains(res.Error, "clean up") {
		t.Errorf("got %q", res.Error)
	}
}

func TestSkipReasonStandsAlone(t *testing.T) {
	res := Result{}
	res.setOutcome(fmt.Errorf("stop the second scheduler: %w", Skip("there is no Deployment")), "hint")
	if res.Status != Skipped || res.Error != "there is no Deployment" || res.Hint != "" {
		t.Errorf("got %+v", res)
	}
}
