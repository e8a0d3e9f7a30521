// Runs code in a forked child, so that a crash, an exit() or a hang is something to report.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <string_view>

namespace prun {

struct IsolatedResult {
  std::string output;     // all that `body` said, also when it died afterwards
  std::string ending;     // the process's end, to end a sentence with: "crashed with SIGSEGV (...)"
  bool returned = false;  // says that `body` came back
};

// `body` runs in the child with a function that sends text to the parent, and should not throw. Call this
// where no other threads run: a child has only the thread that forked it. `limit` is the time for which it
// may say nothing. Throws storage when the system gives no process.
using Say = std::function<void(std::string_view text)>;
IsolatedResult run_isolated(const std::function<void(const Say& say)>& body, std::chrono::milliseconds limit);

// Checks that write(), which `call` of a plugin decides, gives the same text in another process, as on each
// rank. Throws bad_input otherwise.
void check_alike_elsewhere(const char* call, const std::function<std::string()>& write);

}  // namespace prun
