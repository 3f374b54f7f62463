package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// ticks per second of the times in /proc/PID/stat: fixed in the kernel's interface.
const ticks = 100

// tally counts what happens between begin and end. Errors count at any time.
type tally struct {
	pid, own   int
	exact      bool
	lock       sync.Mutex
	open, over bool
	latencies  []time.Duration
	events     int
	unfinished int
	errors     int
	firstError string
	began      time.Time
	seconds    float64
	cpu        float64
	ownCPU     float64
}

type outcome struct {
	Requests            int     `json:"requests"`
	Seconds             float64 `json:"seconds"`
	CPUSeconds          float64 `json:"cpu_seconds"`
	GeneratorCPUSeconds float64 `json:"generator_cpu_seconds"`
	Errors              int     `json:"errors"`
	FirstError          string  `json:"first_error"`
	PeakMB              float64 `json:"peak_mb"`
	P50                 float64 `json:"p50_ms"`
	P95                 float64 `json:"p95_ms"`
	P99                 float64 `json:"p99_ms"`
	Events              int     `json:"events"`
	Unfinished          int     `json:"unfinished"`
}

func newTally(asked job) *tally {
	return &tally{pid: asked.PID, own: os.Getpid(), exact: asked.Exact}
}

// begin opens the window.
func (counted *tally) begin() {
	counted.lock.Lock()
	defer counted.lock.Unlock()
	if counted.over {
		return
	}
	counted.open = true
	counted.cpu, counted.ownCPU = counted.cpuOf(counted.pid), cpuSeconds(counted.own)
	counted.began = time.Now()
}

// end closes the window, once.
func (counted *tally) end() {
	counted.lock.Lock()
	defer counted.lock.Unlock()
	if counted.open {
		counted.seconds = time.Since(counted.began).Seconds()
		counted.cpu = counted.cpuOf(counted.pid) - counted.cpu
		counted.ownCPU = cpuSeconds(counted.own) - counted.ownCPU
	}
	counted.open, counted.over = false, true
}

func (counted *tally) stopped() bool {
	counted.lock.Lock()
	defer counted.lock.Unlock()
	return counted.over
}

func (counted *tally) answered(latency time.Duration) {
	counted.lock.Lock()
	defer counted.lock.Unlock()
	if counted.open {
		counted.latencies = append(counted.latencies, latency)
	}
}

func (counted *tally) chunks(number int) {
	counted.lock.Lock()
	defer counted.lock.Unlock()
	if counted.open {
		counted.events += number
	}
}

func (counted *tally) giveUp(streams int) {
	counted.lock.Lock()
	defer counted.lock.Unlock()
	counted.unfinished = streams
}

func (counted *tally) wrong(why error) {
	counted.lock.Lock()
	defer counted.lock.Unlock()
	counted.errors++
	if counted.firstError == "" {
		counted.firstError = why.Error()
	}
}

func (counted *tally) outcome() outcome {
	counted.lock.Lock()
	defer counted.lock.Unlock()
	slices.Sort(counted.latencies)
	return outcome{
		Requests:            len(counted.latencies),
		Seconds:             counted.seconds,
		CPUSeconds:          counted.cpu,
		GeneratorCPUSeconds: counted.ownCPU,
		Errors:              counted.errors,
		FirstError:          counted.firstError,
		PeakMB:              peakMB(counted.pid),
		P50:                 percentile(counted.latencies, 0.50),
		P95:                 percentile(counted.latencies, 0.95),
		P99:                 percentile(counted.latencies, 0.99),
		Events:              counted.events,
		Unfinished:          counted.unfinished,
	}
}

func (counted *tally) cpuOf(pid int) float64 {
	if counted.exact {
		return cpuExactly(pid)
	}
	return cpuSeconds(pid)
}

// cpuSeconds is the user and system time of a process and its threads, ended ones too.
func cpuSeconds(pid int) float64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	// The name may hold spaces and parentheses: the numbers begin after the last one.
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return float64(user+system) / ticks
}

// cpuExactly is the same of the threads that there are, to the nanosecond.
func cpuExactly(pid int) float64 {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	total := 0
	for _, file := range files {
		if text, err := os.ReadFile(file); err == nil {
			number, _ := strconv.Atoi(strings.Fields(string(text))[0])
			total += number
		}
	}
	return float64(total) / 1e9
}

// peakMB is the most memory a process ever had.
func peakMB(pid int) float64 {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range strings.Lines(string(text)) {
		if value, found := strings.CutPrefix(line, "VmHWM:"); found {
			number, _ := strconv.Atoi(strings.Fields(value)[0])
			return float64(number) / 1024
		}
	}
	return 0
}

// percentile is in milliseconds, of what is sorted.
func percentile(ordered []time.Duration, part float64) float64 {
	if len(ordered) == 0 {
		return 0
	}
	return ordered[min(len(ordered)-1, int(part*float64(len(ordered))))].Seconds() * 1000
}
