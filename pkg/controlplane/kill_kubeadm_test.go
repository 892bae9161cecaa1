// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/journal"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/manifests"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/nodefs"
)

// brokenUninstall is an uninstallation that starts while kube-apiserver is not
// ready, so that the change of kubeadm's configuration is planned when it is ready.
const brokenUninstall = "broken-uninstall"

// storedByKubeadm is what "kubeadm init" has stored, with a comment.
const storedByKubeadm = "# mine\napiServer: {}\nclusterName: kubernetes\nkind: ClusterConfiguration\n"

// kubeadmAPI implements as much of an API server as StepKubeadm needs. It outlives
// the processes that are killed.
type kubeadmAPI struct {
	*httptest.Server
	mu   sync.Mutex
	down bool
	// pods are those of kube-apiserver.
	pods []corev1.Pod
	cm   corev1.ConfigMap
}

func startKubeadmAPI(t *testing.T) *kubeadmAPI {
	t.Helper()
	a := &kubeadmAPI{}
	a.set(storedByKubeadm)
	mux := http.NewServeMux()
	const name = "/api/v1/namespaces/kube-system/configmaps/" + manifests.KubeadmConfigMap
	mux.HandleFunc("GET "+name, func(w http.ResponseWriter, _ *http.Request) { answer(w, a.cm) })
	mux.HandleFunc("PUT "+name, func(w http.ResponseWriter, r *http.Request) {
		var cm corev1.ConfigMap
		if err := json.NewDecoder(r.Body).Decode(&cm); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if r.URL.Query().Get("dryRun") == "" {
			a.cm = cm
		}
		answer(w, cm)
	})
	mux.HandleFunc("GET /api/v1/namespaces/kube-system/pods", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, corev1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}, Items: a.pods})
	})
	a.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.down {
			http.Error(w, "no etcd", http.StatusInternalServerError)
			return
		}
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(a.Close)
	return a
}

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}

func (a *kubeadmAPI) set(text string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.cm = corev1.ConfigMap{TypeMeta: metav1.TypeMeta{Kind: "ConfigMap", APIVersion: "v1"},
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: manifests.KubeadmConfigMap, ResourceVersion: "1"}, Data: map[string]string{manifests.KubeadmKey: text}}
}

func (a *kubeadmAPI) breakDown(down bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.down = down
}

// want fails unless the stored configuration has the tunnel, or is the original if
// tunnel is false.
func (a *kubeadmAPI) want(t *testing.T, tunnel bool) {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	if text := a.cm.Data[manifests.KubeadmKey]; !tunnel && text != storedByKubeadm || tunnel && !strings.Contains(text, "egress-selector-config-file") {
		t.Errorf("with the tunnel %v is wanted, ConfigMap %s is\n%s", tunnel, manifests.KubeadmConfigMap, text)
	}
}

// withAPI makes a run use the API server at url.
func withAPI(o *Options, url string) {
	o.LeaveKubeadmConfig = false
	o.client = kubernetes.NewForConfigOrDie(&rest.Config{Host: url, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/json"}})
}

func (a *kubeadmAPI) options(root string) Options {
	o := testOptions(root)
	withAPI(&o, a.URL)
	return o
}

// TestKubeadmKilled checks that kubeadm's stored configuration agrees with the node,
// wherever a run is killed around that change. This includes runs that can plan the
// change only after kube-apiserver is ready again.
func TestKubeadmKilled(t *testing.T) {
	for op, points := range map[string][]string{
		string(OpInstall):   {"step kube-apiserver", "ConfigMap", "step kubeadm-config", "journal done", "state"},
		string(OpUninstall): {"step kube-apiserver", "ConfigMap", "step kubeadm-config", "step certificates", "journal done"},
		brokenUninstall:     {"step kube-apiserver", "journal applying#2", "ConfigMap", "step kubeadm-config", "step certificates", "journal done"},
	} {
		if stride(2) > 1 {
			points = points[:2]
		}
		for _, point := range points {
			for _, over := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s killed after %s, install %v", op, point, over), func(t *testing.T) {
					root, api := testNode(t), startKubeadmAPI(t)
					if op != string(OpInstall) {
						mustInstall(t, api.options(root))
					}
					if _, alive := runKilled(t, root, op, point, api.URL); alive {
						t.Fatal("it came to its end")
					}
					if over {
						mustInstall(t, api.options(root))
						api.want(t, true)
					}
					mustUninstall(t, api.options(root))
					api.want(t, false)
					sameTrees(t, snapshot(t, pristine), snapshot(t, root))
				})
			}
		}
	}
}

// TestKubeadmOfBrokenAPIServer covers a kube-apiserver that never answers during the
// run: the tunnel is removed from the node, the state records what is left to do,
// status reports it, and the next uninstallation does it.
func TestKubeadmOfBrokenAPIServer(t *testing.T) {
	t.Parallel()
	root, api := testNode(t), startKubeadmAPI(t)
	mustInstall(t, api.options(root))
	api.breakDown(true)
	broken := api.options(root)
	broken.ready = func() error { return errors.New("connection refused") }
	for range 2 {
		r, err := Uninstall(t.Context(), broken)
		if err != nil || len(r.Left) != 1 || !strings.Contains(r.Left[0], "uninstall\" again") {
			t.Fatalf("%+v, %v; want kubeadm's part left", r, err)
		}
		h := nodefs.Host{Root: root}
		if h.Exists(serverFile) || !h.Exists(journal.StateFile) {
			t.Error("the server is still there, or the state is gone")
		}
	}
	if s, err := Inspect(t.Context(), broken); err != nil || s.Installed || !strings.Contains(strings.Join(s.Problems, "\n"), kubeadmLeft) {
		t.Errorf("status: %+v, %v", s, err)
	}
	api.breakDown(false)
	mustUninstall(t, api.options(root))
	api.want(t, false)
	sameTrees(t, snapshot(t, pristine), snapshot(t, root))
}

func mustInstall(t *testing.T, o Options) {
	t.Helper()
	if _, err := Install(t.Context(), o); err != nil {
		t.Fatal(err)
	}
}

func mustUninstall(t *testing.T, o Options) {
	t.Helper()
	if _, err := Uninstall(t.Context(), o); err != nil && !errors.Is(err, ErrNotInstalled) {
		t.Fatal(err)
	}
}
