// SPDX-License-Identifier: Apache-2.0

// Package webhooktest is a conversion webhook for tests: that of the Kubernetes
// documentation on versions (hostPort in v1beta1, host and port in v1), with mistakes on
// request. Start at [Handler].
package webhooktest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// Mistake changes a response. It may change the status code by writing to w, and returns
// false if it has answered itself.
type Mistake func(w http.ResponseWriter, request, response map[string]any) bool

// Mistakes by name; "" makes none. Refused says that kube-apiserver refuses the conversion
// of a single object.
var Mistakes = map[string]struct {
	Mistake Mistake
	Refused bool
}{
	"":                  {nil, false},
	"wrong uid":         {onResponse(func(r map[string]any) { r["uid"] = "other" }), true},
	"no objects":        {onResponse(func(r map[string]any) { r["convertedObjects"] = []any{} }), true},
	"failed status":     {onResponse(func(r map[string]any) { r["result"] = map[string]any{"status": "Failed", "message": "not today"} }), true},
	"renamed":           {onMetadata(func(m map[string]any) { m["name"] = "other" }), true},
	"other namespace":   {onMetadata(func(m map[string]any) { m["namespace"] = "other" }), true},
	"other object uid":  {onMetadata(func(m map[string]any) { m["uid"] = "other" }), true},
	"label is a number": {onMetadata(func(m map[string]any) { m["labels"] = map[string]any{"a": 1} }), true},
	"bad label":         {onMetadata(func(m map[string]any) { m["labels"] = map[string]any{"a b": "c"} }), true},
	"labels dropped":    {onMetadata(func(m map[string]any) { delete(m, "labels") }), false},
	"finalizers added":  {onMetadata(func(m map[string]any) { m["finalizers"] = []any{"example.com/f"} }), false},
	"other kind":        {onObject(func(o map[string]any) { o["kind"] = "Other" }), true},
	"version not set":   {onObject(func(o map[string]any) { o["apiVersion"] = "example.com/v7" }), true},
	"no metadata":       {onObject(func(o map[string]any) { delete(o, "metadata") }), true},
	"undeclared field":  {onObject(func(o map[string]any) { o["extra"] = true }), false},
	"port lost":         {onObject(func(o map[string]any) { delete(o, "port") }), false},
	"status 500":        {status(http.StatusInternalServerError), true},
	"not JSON":          {func(w http.ResponseWriter, _, _ map[string]any) bool { fmt.Fprint(w, "<html>"); return false }, true},
	"other review kind": {onReview(func(r map[string]any) { r["kind"] = "AdmissionReview" }), true},
	"no response":       {onReview(func(r map[string]any) { delete(r, "response") }), true},
	"more than a list":  {onList, false},
	"slow": {func(http.ResponseWriter, map[string]any, map[string]any) bool {
		time.Sleep(150 * time.Millisecond)
		return true
	}, false},
	"one object resists": {oneResists, true},
}

func onReview(change func(map[string]any)) Mistake {
	return func(_ http.ResponseWriter, _, response map[string]any) bool { change(response); return true }
}

func onResponse(change func(map[string]any)) Mistake {
	return onReview(func(r map[string]any) { change(r["response"].(map[string]any)) })
}

func onObject(change func(map[string]any)) Mistake {
	return onResponse(func(r map[string]any) {
		objects, _ := r["convertedObjects"].([]any)
		for _, o := range objects {
			change(o.(map[string]any))
		}
	})
}

func onMetadata(change func(map[string]any)) Mistake {
	return onObject(func(o map[string]any) { change(o["metadata"].(map[string]any)) })
}

func status(code int) Mistake {
	return func(w http.ResponseWriter, _, _ map[string]any) bool { http.Error(w, "broken", code); return false }
}

// onList converts only single objects.
func onList(_ http.ResponseWriter, request, response map[string]any) bool {
	if len(request["objects"].([]any)) != 1 {
		response["response"].(map[string]any)["convertedObjects"] = []any{}
	}
	return true
}

// oneResists fails requests that have the object "resists".
func oneResists(_ http.ResponseWriter, request, response map[string]any) bool {
	for _, o := range request["objects"].([]any) {
		if o.(map[string]any)["metadata"].(map[string]any)["name"] == "resists" {
			response["response"].(map[string]any)["result"] = map[string]any{"status": "Failure", "message": "resists cannot be converted"}
		}
	}
	return true
}

// Handler converts, and then makes a mistake.
func Handler(mistake Mistake) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review map[string]any
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		request, ok := review["request"].(map[string]any)
		if !ok {
			http.Error(w, "no request", http.StatusBadRequest)
			return
		}
		response := map[string]any{"uid": request["uid"], "result": map[string]any{"status": "Success"}}
		objects := []any{}
		for _, o := range request["objects"].([]any) {
			objects = append(objects, Convert(o.(map[string]any), request["desiredAPIVersion"].(string)))
		}
		response["convertedObjects"] = objects
		answer := map[string]any{"apiVersion": review["apiVersion"], "kind": "ConversionReview", "response": response}
		w.Header().Set("Content-Type", "application/json")
		if mistake != nil && !mistake(w, request, answer) {
			return
		}
		_ = json.NewEncoder(w).Encode(answer)
	})
}

// annotation keeps a hostPort that cannot be split.
const annotation = "example.com/host-port"

// Convert converts one object without loss.
func Convert(in map[string]any, to string) map[string]any {
	out := map[string]any{}
	for k, v := range in {
		out[k] = v
	}
	out["apiVersion"] = to
	delete(out, "hostPort")
	delete(out, "host")
	delete(out, "port")
	meta := out["metadata"].(map[string]any)
	annotations, _ := meta["annotations"].(map[string]any)
	if strings.HasSuffix(to, "/v1") {
		hostPort, ok := in["hostPort"].(string)
		if !ok {
			return out
		}
		host, port, ok := strings.Cut(hostPort, ":")
		if !ok {
			if annotations == nil {
				annotations = map[string]any{}
			}
			annotations[annotation] = hostPort
			meta["annotations"] = annotations
			return out
		}
		out["host"], out["port"] = host, port
		return out
	}
	host, hasHost := in["host"].(string)
	port, hasPort := in["port"].(string)
	switch kept, ok := annotations[annotation]; {
	case hasHost || hasPort:
		out["hostPort"] = host + ":" + port
	case ok:
		out["hostPort"] = kept
		delete(annotations, annotation)
	}
	return out
}
