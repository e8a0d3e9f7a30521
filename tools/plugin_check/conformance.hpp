// `prun plugins check PATH` checks whether a plugin keeps the contract of the plugin ABI: first what can
// be read from the file, then, in a child process, what it does when loaded.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "plugin/note.hpp"
#include "prun/options.hpp"

namespace prun {

// ------------------------------------------------------------------- conformance

// Holds a section in which every option has its default, or the value it is tried with.
struct DefaultOptions {
  OptionsApi api = {};
  std::shared_ptr<void> owner;        // keeps the memory that api.section points to
  std::vector<std::string> required;  // options without a default: reading one is a failure Status
};
// Throws Error when the schema in the note is broken.
using DefaultOptionsFor = std::function<DefaultOptions(const PluginNote& note)>;

// Says what comes next, so that it can be named should it crash or not end.
using Doing = std::function<void(std::string_view what)>;

// Holds a plugin as it is tried. It runs in the child.
struct TriedPlugin {
  void* object = nullptr;
  const PluginNote& note;
  const std::filesystem::path& path;
  // Makes one more object, with these options.
  std::function<std::shared_ptr<void>(const OptionsApi& options)> create;
  const OptionsApi& options;  // those that `object` was made with
  Doing doing;
};

struct CheckFinding {
  std::string detail;   // is worth saying, what was left out above all
  bool checked = true;  // false: nothing could be tried, for the reason in `detail`
};

// Checks what plugins of one kind do; it is made by those who know the kind. Throws Error for a plugin that
// does something else.
struct KindCheck {
  std::string kind;
  std::string text;  // says what the plugin must do
  std::function<CheckFinding(const TriedPlugin& plugin)> run;
};

enum class CheckVerdict : std::uint8_t { not_run, passed, failed };

struct ContractCheck {
  int number = 0;
  std::string text;  // says what the plugin must do
  CheckVerdict verdict = CheckVerdict::not_run;
  std::string detail;  // says why it failed, or something else worth saying
};

// Returns "PRUN-PLG-006  passed   exports prun_plugin_v1 and nothing else".
std::string to_text(const ContractCheck& check);

// Runs all checks in order of their numbers; those of its kind are the last. `limit` is for each step of a
// check that runs the plugin's code; after it the process is killed.
std::vector<ContractCheck> check_plugin(const std::filesystem::path& path, const DefaultOptionsFor& defaults,
                                        std::chrono::milliseconds limit = std::chrono::seconds(30),
                                        const std::vector<KindCheck>& kind_checks = {});

bool conforms(const std::vector<ContractCheck>& checks);
// Returns the numbers of checks that were not run, "PRUN-PLG-013, PRUN-PLG-014": less is known of such a
// plugin than should be.
std::string not_run(const std::vector<ContractCheck>& checks);

// ------------------------------------------------------------------- isolated
// Runs code in a forked child, so that a crash, an exit() or a hang is something to report.

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
