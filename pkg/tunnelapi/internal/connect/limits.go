// SPDX-License-Identifier: Apache-2.0

package connect

import "github.com/fairlead-dev/fairlead/pkg/gateway"

// limits bound the connections in all and of each user. A mutex of the caller guards them.
type limits struct {
	total, each int
	open        int
	users       map[string]int
	what, hint  string // what is counted, and what a user who has too many of them can do
}

func (l *limits) take(user string) error {
	switch {
	case l.open >= l.total:
		return gateway.Errorf(gateway.ReasonBusy, "try again later, or raise --connect-max-connections", "this server has %d %s, its limit", l.open, l.what)
	case l.users[user] >= l.each:
		return gateway.Errorf(gateway.ReasonBusy, l.hint+", or raise --connect-max-connections-per-user", "user %q has %d %s, the limit for one user", user, l.users[user], l.what)
	}
	l.open++
	l.users[user]++
	return nil
}

func (l *limits) give(user string) {
	l.open--
	if l.users[user]--; l.users[user] == 0 {
		delete(l.users, user)
	}
}
