// SPDX-License-Identifier: Apache-2.0

package connect

import (
	"context"
	"errors"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-dev/fairlead/pkg/apis/tunnel/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/gateway"
	"github.com/fairlead-dev/fairlead/pkg/internal/httpconnect"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/state"
	"github.com/fairlead-dev/fairlead/pkg/tunnelapi/internal/collect"
)

// statuses has the HTTP status of each reason. docs/tunnel-api.md repeats it for users.
var statuses = map[gateway.Reason]struct {
	code   int32
	reason metav1.StatusReason
}{
	gateway.ReasonDenied:          {http.StatusForbidden, metav1.StatusReasonForbidden},
	gateway.ReasonNotFound:        {http.StatusNotFound, metav1.StatusReasonNotFound},
	gateway.ReasonNoEndpoints:     {http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable},
	gateway.ReasonRefused:         {http.StatusBadGateway, metav1.StatusReasonInternalError},
	gateway.ReasonHostUnreachable: {http.StatusBadGateway, metav1.StatusReasonInternalError},
	gateway.ReasonTimeout:         {http.StatusGatewayTimeout, metav1.StatusReasonTimeout},
	gateway.ReasonPathDown:        {http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable},
	gateway.ReasonUnsupported:     {http.StatusUnprocessableEntity, metav1.StatusReasonInvalid},
	gateway.ReasonBusy:            {http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests},
	gateway.ReasonInternal:        {http.StatusInternalServerError, metav1.StatusReasonInternalError},
}

// statusError returns an error of the API. Its cause names the reason.
func statusError(err error) error {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return err
	}
	reason := gateway.ReasonOf(err)
	s, ok := statuses[reason]
	if !ok {
		s = statuses[gateway.ReasonInternal]
	}
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: s.code, Reason: s.reason, Message: err.Error(),
		Details: &metav1.StatusDetails{
			Group: v1alpha1.GroupName, Kind: "tunnelagents",
			Causes: []metav1.StatusCause{{Type: metav1.CauseType(reason), Field: v1alpha1.ConnectCauseField, Message: err.Error()}},
		},
	}}
}

// reasonOf is the reason of an error in log and metrics.
func reasonOf(err error) string {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return string(gateway.ReasonOf(err))
	}
	switch status.Status().Code {
	case http.StatusForbidden, http.StatusUnauthorized:
		return string(gateway.ReasonDenied)
	case http.StatusBadRequest:
		return "malformed"
	case http.StatusNotFound:
		return string(gateway.ReasonNotFound)
	case http.StatusServiceUnavailable:
		return string(gateway.ReasonPathDown)
	}
	return string(gateway.ReasonInternal)
}

// dialError gives a reason to the failure of a dial.
func dialError(ctx context.Context, d gateway.Destination, agent *v1alpha1.TunnelAgent, err error) error {
	var refused *httpconnect.RefusedError
	switch {
	case errors.As(err, &refused) && refused.Code == http.StatusUnauthorized:
		return gateway.Errorf(gateway.ReasonPathDown, "see the log of the konnectivity-server", "the konnectivity-server does not accept this API server: %w", err)
	case errors.As(err, &refused):
		return gateway.TunnelError(d, refused.Code, refused.Status)
	case errors.Is(ctx.Err(), context.DeadlineExceeded) && !errors.Is(err, collect.ErrSilent):
		return gateway.Errorf(gateway.ReasonTimeout, "check that the destination answers", "connect to %s through agent %s: %w", d, agent.Name, context.DeadlineExceeded)
	case errors.Is(err, collect.ErrNoLink):
		return gateway.Errorf(gateway.ReasonPathDown, "choose an agent that \"kubectl get tunnelagents\" shows as connected", "agent %s: %w", agent.Name, err)
	case errors.Is(err, state.ErrNoConnect):
		return gateway.Errorf(gateway.ReasonPathDown, "", "%w", err)
	}
	return gateway.Errorf(gateway.ReasonPathDown, "check that the konnectivity-servers run", "connect to %s through agent %s: %w", d, agent.Name, err)
}
