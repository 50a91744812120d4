//go:build e2e

package e2e

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// browser is Chromium without a window, asked over pipes in its own protocol (chromedevtools.github.io/devtools-protocol): no port
// that others reach, and no driver. One page is open. It is for one goroutine.
type browser struct {
	to      *os.File
	session string
	last    int

	mu      sync.Mutex
	answers map[int]chan answer
	loaded  chan struct{}
	notes   []string // what the page complained of: the console, the security policy, exceptions, dialogs
}

type answer struct {
	Result json.RawMessage
	Error  *struct{ Message string }
}

// newBrowser starts Chromium with a profile of its own.
func newBrowser(t *testing.T) *browser {
	t.Helper()
	theirs, to, err := os.Pipe()
	must(t, err)
	from, answers, err := os.Pipe()
	must(t, err)
	log, err := os.Create(filepath.Join(t.ArtifactDir(), "chromium.log"))
	must(t, err)
	home := t.TempDir()
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, "chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars", "--no-first-run",
		"--disable-background-networking", "--disable-component-update", "--user-data-dir="+filepath.Join(home, "profile"), "--remote-debugging-pipe", "about:blank")
	cmd.Env = append(os.Environ(), "HOME="+home)
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = log, log, []*os.File{theirs, answers} // 3 and 4
	must(t, cmd.Start())
	for _, f := range []*os.File{theirs, answers, log} {
		must(t, f.Close())
	}
	b := &browser{to: to, answers: map[int]chan answer{}, loaded: make(chan struct{}, 8)}
	listened := make(chan struct{})
	go func() { defer close(listened); b.listen(from) }()
	t.Cleanup(func() {
		_ = to.Close() // Chromium ends with its pipe
		select {
		case <-listened:
		case <-time.After(5 * time.Second):
		}
		cancel()
		_ = cmd.Wait()
		_ = from.Close()
	})
	var target struct{ TargetID, SessionID string }
	b.ask(t, "Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	b.ask(t, "Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &target)
	b.session = target.SessionID
	for _, domain := range []string{"Page", "Runtime", "Log"} {
		b.ask(t, domain+".enable", nil, nil)
	}
	return b
}

// listen reads what Chromium says until it has ended.
func (b *browser) listen(from *os.File) {
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, 64<<20)
	lines.Split(func(data []byte, atEOF bool) (int, []byte, error) {
		for i, c := range data {
			if c == 0 {
				return i + 1, data[:i], nil
			}
		}
		if atEOF {
			return 0, nil, bufio.ErrFinalToken
		}
		return 0, nil, nil
	})
	for lines.Scan() {
		var m struct {
			ID     int
			Method string
			Params json.RawMessage
			answer
		}
		if json.Unmarshal(lines.Bytes(), &m) != nil {
			continue
		}
		b.mu.Lock()
		switch to := b.answers[m.ID]; {
		case to != nil:
			to <- m.answer
		case m.Method == "Page.loadEventFired":
			b.loaded <- struct{}{}
		case m.Method == "Log.entryAdded" || m.Method == "Runtime.consoleAPICalled" || m.Method == "Runtime.exceptionThrown" || m.Method == "Page.javascriptDialogOpening":
			b.notes = append(b.notes, m.Method+" "+string(m.Params))
		}
		b.mu.Unlock()
	}
}

// ask has the browser do something, and decodes what it answers.
func (b *browser) ask(t *testing.T, method string, params map[string]any, result any) {
	t.Helper()
	b.last++
	answers := make(chan answer, 1)
	b.mu.Lock()
	b.answers[b.last] = answers
	b.mu.Unlock()
	message := map[string]any{"id": b.last, "method": method}
	if params != nil {
		message["params"] = params
	}
	if b.session != "" {
		message["sessionId"] = b.session
	}
	body, err := json.Marshal(message)
	must(t, err)
	_, err = b.to.Write(append(body, 0))
	must(t, err)
	select {
	case a := <-answers:
		if a.Error != nil {
			t.Fatalf("%s: %s", method, a.Error.Message)
		}
		if result != nil {
			must(t, json.Unmarshal(a.Result, result))
		}
	case <-time.After(patience):
		t.Fatalf("%s: Chromium has not answered within %v", method, patience)
	}
}

// open loads a page, and forgets what the one before complained of.
func (b *browser) open(t *testing.T, url string) {
	t.Helper()
	b.mu.Lock()
	b.notes = nil
	b.mu.Unlock()
	var to struct{ ErrorText string }
	b.ask(t, "Page.navigate", map[string]any{"url": url}, &to)
	if to.ErrorText != "" {
		t.Fatalf("open %s: %s", url, to.ErrorText)
	}
	b.awaitLoad(t)
}

func (b *browser) awaitLoad(t *testing.T) {
	t.Helper()
	select {
	case <-b.loaded:
	case <-time.After(patience):
		t.Fatal("the page has not loaded")
	}
}

// complaints returns what the page has complained of so far.
func (b *browser) complaints() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.notes
}

// show sets the width and the scheme of colours, "light" or "dark".
func (b *browser) show(t *testing.T, width int, scheme string) {
	t.Helper()
	b.ask(t, "Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false}, nil)
	b.ask(t, "Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}}}, nil)
}

// value returns what an expression is on the page. The browser's protocol runs it, whatever the page's policy forbids.
func (b *browser) value(t *testing.T, expression string, into any) {
	t.Helper()
	var r struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails *struct{ Exception struct{ Description string } }
	}
	b.ask(t, "Runtime.evaluate", map[string]any{"expression": expression, "awaitPromise": true, "returnByValue": true}, &r)
	if r.ExceptionDetails != nil {
		t.Fatalf("%.200s: %s", expression, r.ExceptionDetails.Exception.Description)
	}
	if into != nil {
		must(t, json.Unmarshal(r.Result.Value, into))
	}
}

// picture writes what is seen of the whole page to a file.
func (b *browser) picture(t *testing.T, file string) {
	t.Helper()
	var shot struct{ Data string }
	b.ask(t, "Page.captureScreenshot", map[string]any{"captureBeyondViewport": true}, &shot)
	data, err := base64.StdEncoding.DecodeString(shot.Data)
	must(t, err)
	must(t, os.WriteFile(file, data, 0o600))
}
