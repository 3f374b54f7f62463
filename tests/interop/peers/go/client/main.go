// Command client drives an agent through the official Go SDK, one JSON line per case.
//
//	client URL JSONRPC|HTTP+JSON|GRPC 1.0|0.3 [CASE]
//
// The agent must have the skills of tests/interop/agents.py. Exit code 1: a case failed.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"
)

const caseTimeout = 20 * time.Second

// caseFailed ends a case: the agent's answer is not what the case asks for, or the SDK could not read it.
type caseFailed struct {
	complaint string
}

func fail(format string, details ...any) {
	panic(caseFailed{fmt.Sprintf(format, details...)})
}

func expect(condition bool, format string, details ...any) {
	if !condition {
		fail(format, details...)
	}
}

// must ends the case if the SDK returned an error.
func must[T any](value T, err error) T {
	expect(err == nil, "%v", err)
	return value
}

func report(name string, ok bool, detail string) {
	line, err := json.Marshal(struct {
		Case   string `json:"case"`
		OK     bool   `json:"ok"`
		Detail string `json:"detail"`
	}{name, ok, detail})
	if err != nil {
		panic(err)
	}
	fmt.Println(string(line))
}

// passes runs one case and reports it.
func passes(name string, run func(context.Context) string) (ok bool) {
	ctx, cancel := context.WithTimeout(context.Background(), caseTimeout)
	defer cancel()
	defer func() {
		switch trouble := recover().(type) {
		case nil:
		case caseFailed:
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				trouble.complaint = fmt.Sprintf("no end after %s: %s", caseTimeout, trouble.complaint)
			}
			report(name, false, trouble.complaint)
		default: // whatever the SDK trips over is a finding of this case
			report(name, false, fmt.Sprintf("panic: %v", trouble))
		}
	}()
	report(name, true, run(ctx))
	return true
}

func main() {
	if len(os.Args) < 4 || len(os.Args) > 5 {
		fmt.Fprintln(os.Stderr, "usage: client URL JSONRPC|HTTP+JSON|GRPC 1.0|0.3 [CASE]")
		os.Exit(2)
	}
	var agent *peer
	healthy := passes("card", func(ctx context.Context) string {
		agent = discover(ctx, os.Args[1], os.Args[2], os.Args[3])
		return agent.card.SupportedInterfaces[0].URL
	})
	if !healthy {
		os.Exit(1)
	}
	known := false
	for _, each := range cases {
		if len(os.Args) == 5 && os.Args[4] != each.name {
			continue
		}
		known = true
		healthy = passes(each.name, func(ctx context.Context) string { return each.run(ctx, agent) }) && healthy
	}
	if !known {
		fmt.Fprintf(os.Stderr, "no case is named %s\n", os.Args[4])
		os.Exit(2)
	}
	if !healthy {
		os.Exit(1)
	}
}
