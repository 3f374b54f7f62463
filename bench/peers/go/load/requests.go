package main

import (
	"fmt"
	"sync"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2apb/v1"
)

// loadRequests has a fixed number of callers, each asking again as soon as it is answered.
func loadRequests(asked job, counted *tally, texts *messages, clients []a2apb.A2AServiceClient) {
	time.AfterFunc(seconds(asked.Warmup), counted.begin)
	var callers sync.WaitGroup
	for _, client := range clients {
		callers.Go(func() {
			for !counted.stopped() {
				ask(asked, counted, texts, client)
			}
		})
	}
	time.Sleep(seconds(asked.Warmup + asked.Seconds))
	counted.end()
	callers.Wait()
}

func ask(asked job, counted *tally, texts *messages, client a2apb.A2AServiceClient) {
	request, text := texts.echo()
	context, cancel := calling(asked)
	defer cancel()
	began := time.Now()
	answer, err := client.SendMessage(context, request)
	counted.answered(time.Since(began))
	if err == nil {
		err = checkEcho(answer.GetTask(), text)
	}
	if err != nil {
		counted.wrong(err)
	}
}

// checkEcho says what is wrong unless the task is completed and its result is the text.
func checkEcho(task *a2apb.Task, text string) error {
	if state := task.GetStatus().GetState(); state != a2apb.TaskState_TASK_STATE_COMPLETED {
		return fmt.Errorf("the task is %v", state)
	}
	if artifacts := task.GetArtifacts(); len(artifacts) != 1 || textOf(artifacts[0]) != text {
		return fmt.Errorf("the echo is not what was said")
	}
	return nil
}
