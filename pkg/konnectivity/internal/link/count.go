// SPDX-License-Identifier: Apache-2.0

package link

import (
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/promtext"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/wire"
)

// Counters count frames, in the terms of upstream's protocol, so that what
// reads upstream's metrics finds the same there. What only this protocol
// has (credit and its lack, pings) is not counted. A field that is nil counts nothing.
type Counters struct {
	// Sent and Received hold a counter for each packet type.
	Sent, Received *[8]*promtext.Value
}

// frameCounters has a counter, or nil, for each type of frame.
type frameCounters [typeBlocked + 1]*promtext.Value

func (f *frameCounters) count(typ byte) {
	if int(typ) < len(f) && f[typ] != nil {
		f[typ].Inc()
	}
}

// perFrame orders counters by type of frame. The end of what an agent sends is
// what upstream calls CLOSE_RSP, that of what a server sends CLOSE_REQ.
func perFrame(values *[8]*promtext.Value, closing wire.Type) (f frameCounters) {
	if values == nil {
		return f
	}
	for typ, as := range map[byte]wire.Type{
		typeDial: wire.DialReq, typeDialed: wire.DialRsp, typeDialFail: wire.DialRsp, typeData: wire.Data,
		typeFin: closing, typeClose: closing, typeReset: closing, typeDrain: wire.Drain,
	} {
		f[typ] = values[as]
	}
	return f
}
