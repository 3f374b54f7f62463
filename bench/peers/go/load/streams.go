package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2apb/v1"
	"google.golang.org/grpc"
)

// warmUpChunks are enough to have every line of the server run before anything is measured.
const warmUpChunks = 50

// firstID is the metadata by which a server that numbers its events says the number of the first.
const firstID = "first-event-id"

// loadStreams reads short streams to warm up, then streams until the time is up and the last has ended, or has been
// given up.
func loadStreams(asked job, counted *tally, texts *messages, clients []a2apb.A2AServiceClient) {
	warming := asked
	warming.Seconds, warming.Chunks = asked.Warmup, warmUpChunks
	readAll(warming, newTally(asked), texts, clients)
	counted.begin()
	readAll(asked, counted, texts, clients)
	counted.end()
}

func readAll(asked job, counted *tally, texts *messages, clients []a2apb.A2AServiceClient) {
	until := time.Now().Add(seconds(asked.Seconds))
	limit := time.After(seconds(asked.Limit))
	var reading atomic.Int64
	reading.Add(int64(len(clients)))
	var readers sync.WaitGroup
	for _, client := range clients {
		readers.Go(func() {
			defer reading.Add(-1)
			for first := true; first || time.Now().Before(until); first = false {
				began := time.Now()
				if err := read(asked, counted, texts, client); err != nil {
					if !counted.stopped() { // else it was given up
						counted.wrong(err)
					}
					return
				}
				counted.answered(time.Since(began))
			}
		})
	}
	finished := make(chan struct{})
	go func() { readers.Wait(); close(finished) }()
	select {
	case <-finished:
	case <-limit:
		counted.end()
		counted.giveUp(int(reading.Load()))
	}
}

// read takes one stream: every chunk once and in order, a completed task at the end.
func read(asked job, counted *tally, texts *messages, client a2apb.A2AServiceClient) error {
	context, cancel := calling(asked)
	defer cancel()
	stream, err := client.SendStreamingMessage(context, texts.count(asked.Chunks))
	if err != nil {
		return err
	}
	if asked.Numbered {
		if err := checkNumbered(stream); err != nil {
			return err
		}
	}
	follow := follower{chunks: asked.Chunks}
	for {
		event, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return follow.finish()
		}
		if err != nil {
			return err
		}
		before := follow.seen
		if err := follow.take(event); err != nil {
			return err
		}
		counted.chunks(follow.seen - before)
	}
}

func checkNumbered(stream grpc.ClientStream) error {
	header, err := stream.Header()
	if err != nil {
		return err
	}
	if numbers := header.Get(firstID); len(numbers) != 1 || numbers[0] != "1" {
		return fmt.Errorf("the first event has number %v", numbers)
	}
	return nil
}

// follower follows one stream, as StreamCheck of bench/replies.py does.
type follower struct {
	chunks, seen, events int
	said                 strings.Builder
	state                a2apb.TaskState
}

func (follow *follower) take(event *a2apb.StreamResponse) error {
	if follow.state == a2apb.TaskState_TASK_STATE_COMPLETED {
		return errors.New("an event after the last")
	}
	if follow.events == 0 && event.GetTask() == nil {
		return errors.New("the first event is not the task")
	}
	follow.events++
	switch payload := event.GetPayload().(type) {
	case *a2apb.StreamResponse_ArtifactUpdate:
		return follow.takeArtifact(payload.ArtifactUpdate)
	case *a2apb.StreamResponse_StatusUpdate:
		follow.state = payload.StatusUpdate.GetStatus().GetState()
	}
	return nil
}

func (follow *follower) takeArtifact(update *a2apb.TaskArtifactUpdateEvent) error {
	text := textOf(update.GetArtifact())
	if text == chunkText(follow.seen) {
		follow.seen++
		follow.said.WriteString(text)
		return nil
	}
	// The end may be marked by an empty chunk, or by the whole text once more.
	if update.GetLastChunk() && (text == "" || text == follow.said.String()) {
		return nil
	}
	return fmt.Errorf("chunk %d is %.40q", follow.seen, text)
}

func (follow *follower) finish() error {
	if follow.seen != follow.chunks {
		return fmt.Errorf("%d chunks, not %d", follow.seen, follow.chunks)
	}
	if follow.state != a2apb.TaskState_TASK_STATE_COMPLETED {
		return fmt.Errorf("the last state is %v", follow.state)
	}
	return nil
}
