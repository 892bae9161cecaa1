// SPDX-License-Identifier: Apache-2.0

// Package webhook serves package conversion to the API server, as a conversion webhook for
// the CustomResourceDefinitions of group fairlead.dev.
//
// Start with [New], which makes the HTTP handler. The handler holds no state and uses no
// client, so any number of replicas may serve it, also before they lead. It refuses a
// request that is too large, queues excess requests, and answers 429 with Retry-After; it never
// refuses stored data.
package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/fairlead-dev/fairlead/pkg/apis/fairlead/conversion"
)

// Path at which the API server calls the handler.
const Path = conversion.WebhookPath

// Defaults of Options.
const (
	DefaultMaxBytes    = 64 << 20
	DefaultMaxInFlight = 64
	DefaultMaxWait     = 5 * time.Second

	// firstBytes is the memory that a request gets at first.
	firstBytes = 16 << 10
	// retryAfter, in seconds, has kube-apiserver send a request again. It does not without that.
	retryAfter = "1"
	// bytesPerObject and bytesPerValue bound the objects and values of JSON in a request, as
	// parts of its largest size.
	bytesPerObject = 64
	bytesPerValue  = 8
	// storedObjects and storedValues are more than one stored object has: etcd takes 1.5 MiB for one by
	// default, and the shortest objects in it are those of managedFields, such as "f:a":{}.
	storedObjects = storedBytes / 8
	storedValues  = storedBytes / 2
	storedBytes   = 3 << 19
)

// past is a deadline that ends a read or a write at once.
var past = time.Unix(1, 0)

// Options are the limits of a handler.
type Options struct {
	// MaxBytes limits a request's body. Default: DefaultMaxBytes, which is four lists of
	// 1,500 objects of 10 kB.
	MaxBytes int64
	// MaxInFlight limits concurrent conversions. A request takes a place when its body is whole.
	// All requests that are sent, wait or are answered have the memory of one more.
	// Default: DefaultMaxInFlight.
	MaxInFlight int
	// MaxWait is how long a request waits for a place, and for memory. Default: DefaultMaxWait.
	MaxWait time.Duration
}

// Handler is the HTTP handler. It is also a prometheus.Collector of its metrics.
type Handler struct {
	maxBytes int64
	maxWait  time.Duration
	places   chan struct{}
	memory   *budget

	objects  *prometheus.CounterVec
	requests *prometheus.CounterVec
	seconds  prometheus.Histogram
}

// New makes a handler.
func New(o Options) *Handler {
	if o.MaxBytes == 0 {
		o.MaxBytes = DefaultMaxBytes
	}
	if o.MaxInFlight == 0 {
		o.MaxInFlight = DefaultMaxInFlight
	}
	if o.MaxWait == 0 {
		o.MaxWait = DefaultMaxWait
	}
	return &Handler{
		maxBytes: o.MaxBytes, maxWait: o.MaxWait, places: make(chan struct{}, o.MaxInFlight),
		memory: newBudget((o.MaxBytes + 1) * int64(o.MaxInFlight+1)),
		objects: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fairlead_conversion_objects_total", Help: "Converted objects, by kind and apiVersion.",
		}, []string{"kind", "from", "to"}),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fairlead_conversion_requests_total", Help: "Conversion requests, by result.",
		}, []string{"result"}),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "fairlead_conversion_request_duration_seconds", Help: "Time from the begin of a conversion request to its answer, with the wait for memory and a place.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
		}),
	}
}

// Describe implements prometheus.Collector.
func (h *Handler) Describe(c chan<- *prometheus.Desc) {
	h.objects.Describe(c)
	h.requests.Describe(c)
	h.seconds.Describe(c)
}

// Collect implements prometheus.Collector.
func (h *Handler) Collect(c chan<- prometheus.Metric) {
	h.objects.Collect(c)
	h.requests.Collect(c)
	h.seconds.Collect(c)
}

// ServeHTTP implements http.Handler. A request first gets memory as its body comes, then a place
// among those that are converted, and gives the place back before its answer is sent: a slow client
// keeps no place.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		h.refuse(w, http.StatusMethodNotAllowed, "bad_request", "send a ConversionReview by POST")
		return
	}
	if !isJSON(r.Header.Get("Content-Type")) {
		h.refuse(w, http.StatusBadRequest, "bad_request", "send a ConversionReview as Content-Type: application/json")
		return
	}
	account := &account{budget: h.memory}
	defer account.release()
	start := time.Now()
	body, err := h.read(w, r, account)
	var answer []byte
	if err == nil {
		answer, err = h.answer(r.Context(), body)
	}
	h.seconds.Observe(time.Since(start).Seconds())
	if err != nil {
		h.refuseError(w, err)
		return
	}
	account.waits(func() { _ = http.NewResponseController(w).SetWriteDeadline(past) })
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(answer) // fails if the client has gone
}

// isJSON reports whether a Content-Type is that of JSON, or none: then the body tells.
func isJSON(contentType string) bool {
	if contentType == "" {
		return true
	}
	mediaType, _, err := mime.ParseMediaType(contentType)
	return err == nil && mediaType == "application/json"
}

// read returns the body once it is whole.
func (h *Handler) read(w http.ResponseWriter, r *http.Request, account *account) ([]byte, error) {
	if r.ContentLength > h.maxBytes {
		return nil, &http.MaxBytesError{Limit: h.maxBytes}
	}
	account.waits(func() { _ = http.NewResponseController(w).SetReadDeadline(past) })
	limited := http.MaxBytesReader(w, r.Body, h.maxBytes)
	var body []byte
	for {
		if len(body) == cap(body) {
			// A byte more than the body has, to see its end without more memory.
			size := min(max(firstBytes, 2*int64(cap(body))), h.maxBytes+1)
			if r.ContentLength >= 0 {
				size = max(min(size, r.ContentLength+1), int64(cap(body))+1)
			}
			bounded, cancel := context.WithTimeout(r.Context(), h.maxWait)
			err := account.hold(bounded, size-int64(cap(body)))
			cancel()
			if err != nil {
				return nil, err
			}
			body = append(make([]byte, 0, size), body...)
		}
		n, err := limited.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		switch {
		case errors.Is(err, io.EOF):
			return body, account.goesOn()
		case err != nil:
			return nil, errors.Join(account.goesOn(), err)
		}
	}
}

// reviewKind is the kind of requests and answers.
const reviewKind = "ConversionReview"

// errTooManyValues is the answer to a request that would take far more memory than its bytes.
var errTooManyValues = errors.New("the request has too many values for its size: list fewer objects at once (limit)")

// errNoPlace is the answer to a request that got no place in time.
var errNoPlace = errors.New("too many conversions at once")

// answer converts in one of the places.
func (h *Handler) answer(ctx context.Context, body []byte) ([]byte, error) {
	timer := time.NewTimer(h.maxWait)
	defer timer.Stop()
	select {
	case h.places <- struct{}{}:
		defer func() { <-h.places }()
	case <-timer.C:
		return nil, errNoPlace
	case <-ctx.Done():
		return nil, errNoPlace
	}
	if h.tooMany(body) {
		return nil, errTooManyValues
	}
	review := &apiextensionsv1.ConversionReview{}
	if err := json.Unmarshal(body, review); err != nil {
		return nil, err
	}
	if gvk := review.GroupVersionKind(); gvk.Group != apiextensionsv1.GroupName || gvk.Kind != reviewKind {
		return nil, fmt.Errorf("the body is of apiVersion %q and kind %q", review.APIVersion, review.Kind)
	}
	if review.Request == nil {
		return nil, errors.New("request is missing")
	}
	// The answer has the apiVersion of the request. Versions v1 and v1beta1 have the same fields.
	review.Response = h.convert(review.Request)
	review.Request = nil
	h.requests.WithLabelValues(review.Response.Result.Status).Inc()
	return json.Marshal(review)
}

// tooMany reports whether a request would take far more memory than its bytes: an object of JSON
// takes some 350 bytes however short it is. Real lists are some times below the limits, and one
// object that is stored never reaches them.
func (h *Handler) tooMany(body []byte) bool {
	objects, values := count(body)
	return objects > max(h.maxBytes/bytesPerObject, storedObjects) || values > max(h.maxBytes/bytesPerValue, storedValues)
}

// count returns how many objects JSON has, and about how many values, outside of strings. What is no
// JSON is refused later, before it takes memory.
func count(body []byte) (objects, values int64) {
	for i := 0; i < len(body); i++ {
		switch body[i] {
		case '{':
			objects++
		case ',', '[':
			values++
		case '"':
			for i++; i < len(body) && body[i] != '"'; i++ {
				if body[i] == '\\' {
					i++
				}
			}
		}
	}
	return objects, values
}

// refuseError answers with an error of read or answer.
func (h *Handler) refuseError(w http.ResponseWriter, err error) {
	tooLarge := (*http.MaxBytesError)(nil)
	switch {
	case errors.Is(err, errNoPlace) || errors.Is(err, errNoMemory) || errors.Is(err, errEvicted):
		w.Header().Set("Retry-After", retryAfter)
		h.refuse(w, http.StatusTooManyRequests, "too_many", err.Error()+": try again")
	case errors.As(err, &tooLarge):
		h.refuse(w, http.StatusRequestEntityTooLarge, "too_large", fmt.Sprintf("the request has more than %d bytes: list fewer objects at once (limit)", h.maxBytes))
	case errors.Is(err, errTooManyValues):
		h.refuse(w, http.StatusRequestEntityTooLarge, "too_large", err.Error())
	default:
		h.refuse(w, http.StatusBadRequest, "bad_request", "no ConversionReview of apiextensions.k8s.io: "+err.Error())
	}
}

func (h *Handler) refuse(w http.ResponseWriter, code int, result, message string) {
	h.requests.WithLabelValues(result).Inc()
	http.Error(w, message, code)
}

// convert converts all objects or, if one of them is of no known kind or version, none.
func (h *Handler) convert(request *apiextensionsv1.ConversionRequest) *apiextensionsv1.ConversionResponse {
	response := &apiextensionsv1.ConversionResponse{UID: request.UID, Result: metav1.Status{Status: metav1.StatusSuccess}}
	converted := make([]runtime.RawExtension, 0, len(request.Objects))
	for i, object := range request.Objects {
		raw, err := h.convertOne(object.Raw, request.DesiredAPIVersion)
		if err != nil {
			response.Result = metav1.Status{Status: metav1.StatusFailure, Message: fmt.Sprintf("object %d: %v", i, err)}
			return response
		}
		converted = append(converted, runtime.RawExtension{Raw: raw})
	}
	response.ConvertedObjects = converted
	return response
}

func (h *Handler) convertOne(raw []byte, to string) ([]byte, error) {
	var object map[string]any
	if err := utiljson.Unmarshal(raw, &object); err != nil {
		return nil, err
	}
	kind, _ := object["kind"].(string)
	from, _ := object["apiVersion"].(string)
	if err := conversion.Convert(object, to); err != nil {
		return nil, err
	}
	h.objects.WithLabelValues(kind, from, to).Inc()
	return json.Marshal(object)
}
