// Says what the kstatus library says of objects: one JSON object per line in, one verdict per line out.
// A text `@now-20s` in an object stands for the time 20 s ago.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kjson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"
)

// verdict has an error, a panic, or a status.
type verdict struct {
	Status  string `json:"status,omitempty"`
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	Error   string `json:"error,omitempty"`
	Panic   string `json:"panic,omitempty"`
}

func judge(line []byte) (said verdict) {
	defer func() {
		if cause := recover(); cause != nil {
			said = verdict{Panic: fmt.Sprint(cause)}
		}
	}()
	var object map[string]interface{}
	// As the API machinery decodes: whole numbers are int64.
	if err := kjson.Unmarshal(line, &object); err != nil {
		return verdict{Error: err.Error()}
	}
	setTimes(object)
	result, err := status.Compute(&unstructured.Unstructured{Object: object})
	if err != nil {
		return verdict{Error: err.Error()}
	}
	said = verdict{Status: result.Status.String(), Message: result.Message}
	if len(result.Conditions) > 0 {
		said.Reason = result.Conditions[0].Reason
	}
	return said
}

func setTimes(value interface{}) interface{} {
	switch value := value.(type) {
	case string:
		text, found := strings.CutPrefix(value, "@now-")
		if ago, err := time.ParseDuration(text); found && err == nil {
			return time.Now().Add(-ago).UTC().Format(time.RFC3339)
		}
	case map[string]interface{}:
		for key, inner := range value {
			value[key] = setTimes(inner)
		}
	case []interface{}:
		for i, inner := range value {
			value[i] = setTimes(inner)
		}
	}
	return value
}

func run(in io.Reader, out io.Writer) error {
	reader := bufio.NewReaderSize(in, 1<<20)
	writer := bufio.NewWriter(out)
	encoder := json.NewEncoder(writer)
	for {
		line, err := reader.ReadBytes('\n')
		if len(line) > 0 {
			if err := encoder.Encode(judge(line)); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return writer.Flush()
		}
		if err != nil {
			return err
		}
	}
}

func main() {
	if err := run(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "kstatus-oracle:", err)
		os.Exit(1)
	}
}
