//go:build e2e

package e2e

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// browser is Chromium without a window, asked over pipes in its own protocol (chromedevtools.github.io/devtools-protocol): no port
// that others reach, and no driver. One page is open. It is for one goroutine.
type browser struct {
	to, from *os.File
	says     *bufio.Reader // of from
	session  string
	last     int

	loaded bool
	notes  []string // what the page complained of: the console, the security policy, exceptions, dialogs
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
	cmd := exec.Command("chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars", "--no-first-run",
		"--disable-background-networking", "--disable-component-update", "--user-data-dir="+filepath.Join(home, "profile"), "--remote-debugging-pipe", "about:blank")
	cmd.WaitDelay, cmd.Env = 5*time.Second, append(os.Environ(), "HOME="+home)
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = log, log, []*os.File{theirs, answers} // 3 and 4
	must(t, cmd.Start())
	for _, f := range []*os.File{theirs, answers, log} {
		must(t, f.Close())
	}
	b := &browser{to: to, from: from, says: bufio.NewReader(from)}
	t.Cleanup(func() {
		_ = to.Close() // Chromium ends with its pipe
		kill := time.AfterFunc(5*time.Second, func() { _ = cmd.Process.Kill() })
		_, _ = io.Copy(io.Discard, from)
		_ = cmd.Wait()
		kill.Stop()
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

// answer is what Chromium says: to something that it was asked, or of what has happened.
type answer struct {
	ID             int
	Method         string
	Params, Result json.RawMessage
	Error          *struct{ Message string }
}

// hear reads what Chromium says next, and notes what has happened.
func (b *browser) hear(t *testing.T) (a answer) {
	t.Helper()
	line, err := b.says.ReadBytes(0)
	must(t, err)
	must(t, json.Unmarshal(line[:len(line)-1], &a))
	switch a.Method {
	case "Page.loadEventFired":
		b.loaded = true
	case "Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Page.javascriptDialogOpening":
		b.notes = append(b.notes, a.Method+" "+string(a.Params))
	}
	return a
}

// ask has the browser do something, and decodes what it answers.
func (b *browser) ask(t *testing.T, method string, params map[string]any, result any) {
	t.Helper()
	must(t, b.from.SetReadDeadline(time.Now().Add(patience)))
	b.last++
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
	a := b.hear(t)
	for a.ID != b.last {
		a = b.hear(t)
	}
	if a.Error != nil {
		t.Fatalf("%s: %s", method, a.Error.Message)
	}
	if result != nil {
		must(t, json.Unmarshal(a.Result, result))
	}
}

// open loads a page, and forgets what the one before complained of.
func (b *browser) open(t *testing.T, url string) {
	t.Helper()
	b.notes, b.loaded = nil, false
	var to struct{ ErrorText string }
	b.ask(t, "Page.navigate", map[string]any{"url": url}, &to)
	if to.ErrorText != "" {
		t.Fatalf("open %s: %s", url, to.ErrorText)
	}
	for !b.loaded {
		b.hear(t)
	}
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
