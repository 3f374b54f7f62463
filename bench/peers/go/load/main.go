// Command load is the load generator for gRPC: what `python -m bench.load` is for HTTP. A job comes on stdin, its
// outcome goes to stdout; bench/job.py says what the fields mean.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2apb/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
)

// maxMessage is more than any answer has.
const maxMessage = 64 << 20

type job struct {
	Kind        string  `json:"kind"`
	Port        int     `json:"port"`
	PID         int     `json:"pid"`
	Concurrency int     `json:"concurrency"`
	Connections int     `json:"connections"`
	Seconds     float64 `json:"seconds"`
	Warmup      float64 `json:"warmup"`
	Limit       float64 `json:"limit"`
	IDs         string  `json:"ids"`
	Numbered    bool    `json:"numbered"`
	Chunks      int     `json:"chunks"`
	Exact       bool    `json:"exact"`
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	var asked job
	if err := json.NewDecoder(os.Stdin).Decode(&asked); err != nil {
		return err
	}
	clients, err := connect(asked)
	if err != nil {
		return err
	}
	counted := newTally(asked)
	texts := newMessages(asked.IDs)
	switch asked.Kind {
	case "send":
		loadRequests(asked, counted, texts, clients)
	case "stream":
		loadStreams(asked, counted, texts, clients)
	default:
		return fmt.Errorf("there is no load of the kind %q over gRPC", asked.Kind)
	}
	return json.NewEncoder(os.Stdout).Encode(counted.outcome())
}

// connect gives every caller a connection of its own, as the callers over HTTP have it, or lets them share some.
func connect(asked job) ([]a2apb.A2AServiceClient, error) {
	clients := make([]a2apb.A2AServiceClient, asked.Concurrency)
	for number := range clients {
		if asked.Connections > 0 && number >= asked.Connections {
			clients[number] = clients[number%asked.Connections]
			continue
		}
		connection, err := grpc.NewClient(
			fmt.Sprintf("passthrough:///127.0.0.1:%d", asked.Port),
			grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)),
		)
		if err != nil {
			return nil, err
		}
		clients[number] = a2apb.NewA2AServiceClient(connection)
	}
	return clients, nil
}

// calling is the context of a call: it says the version, and gives up after the limit.
func calling(asked job) (context.Context, context.CancelFunc) {
	versioned := metadata.AppendToOutgoingContext(context.Background(), "a2a-version", "1.0")
	return context.WithTimeout(versioned, seconds(asked.Seconds+asked.Limit))
}

func seconds(number float64) time.Duration {
	return time.Duration(number * float64(time.Second))
}
