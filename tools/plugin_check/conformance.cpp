// Runs the numbered checks. Those of the file run here; those that run the plugin's code report from a child,
// line by line: "begin 8", "doing the kernel of op 'x'", "passed 8", "failed 8 why", "skipped 8 why".
#include "plugin_check/conformance.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "base/durable_file.hpp"
#include "base/sha256.hpp"
#include "base/text.hpp"
#include "plugin/discovery.hpp"
#include "plugin/loader.hpp"
#include "plugin/note.hpp"
#include "plugin/traits.hpp"
#include "prun/error.hpp"
#include "search/open_choices.hpp"

namespace prun {
namespace {

// ------------------------------------------------------------------- isolated
// Uses fork, a pipe for what the child reports, and waitpid for how it ended.

using Clock = std::chrono::steady_clock;

constexpr std::size_t output_limit = std::size_t{1} << 20;
// A child whose body returned sends this last: an exit code alone could also be the plugin's own.
constexpr char returned_mark = '\0';

struct Pipe {
  FileDescriptor read, write;
};

Pipe make_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0)
    throw_error(ErrorCode::storage, "cannot make a pipe: ", std::strerror(errno));
  Pipe pipe{FileDescriptor(ends[0]), FileDescriptor(ends[1])};
  ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
  return pipe;
}

void send(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t count = ::write(fd, text.data(), text.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) ::_exit(1);  // the parent is gone
    text.remove_prefix(static_cast<std::size_t>(count));
  }
}

// A crash must end the child by its signal: no handler of the parent's, no core file. The child ignores what
// the parent was started to ignore.
void prepare_child() {
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS, SIGPIPE})
    ::signal(signal, SIG_DFL);
  for (const int signal : {SIGTERM, SIGINT})
    if (::signal(signal, SIG_DFL) == SIG_IGN) ::signal(signal, SIG_IGN);
  const rlimit none{0, 0};
  ::setrlimit(RLIMIT_CORE, &none);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::setpgid(0, 0);
  ::dup2(STDERR_FILENO, STDOUT_FILENO);  // stdout belongs to the report
}

[[noreturn]] void run_child(int fd, const std::function<void(const Say& say)>& body) {
  prepare_child();
  body([fd](std::string_view text) { send(fd, text); });
  send(fd, std::string_view(&returned_mark, 1));
  ::_exit(0);
}

// Appends what is there; returns false at the end of the stream.
bool drain(int fd, std::string& output) {
  char buffer[4096];
  for (;;) {
    const ssize_t count = ::read(fd, buffer, sizeof buffer);
    if (count > 0 && output.size() < output_limit) output.append(buffer, static_cast<std::size_t>(count));
    if (count == 0) return false;
    if (count < 0 && errno != EINTR) return errno == EAGAIN;
  }
}

std::string describe_end(int status) {
  if (WIFSIGNALED(status)) {
    const int signal = WTERMSIG(status);
    const char* name = ::sigabbrev_np(signal);
    const char* text = ::sigdescr_np(signal);
    return detail::concat("crashed with SIG", name ? name : std::to_string(signal).c_str(), " (",
                          text ? text : "no name", ")");
  }
  return detail::concat("ended the process itself with exit status ", WEXITSTATUS(status));
}

// Says whether the child has ended; it stays a zombie, so that its number stays its own.
bool has_ended(pid_t child) {
  siginfo_t info{};
  return ::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
         info.si_pid == child;
}

// Waits while its output flows, so that the child never blocks on a full pipe. Returns false where it has
// reported nothing for longer than `limit`.
bool wait_for(pid_t child, int fd, std::string& output, std::chrono::milliseconds limit) {
  bool open = true, ended = false;
  Clock::time_point last = Clock::now();
  while (!ended && Clock::now() - last < limit) {
    pollfd entry{open ? fd : -1, POLLIN, 0};
    const bool said = ::poll(&entry, 1, 10) > 0 && open;
    if (said) last = Clock::now();
    ended = has_ended(child);
    open = open && drain(fd, output);
  }
  return ended;
}

// Ends the child if it has not ended yet, with all that it started; returns its status.
int reap(pid_t child) {
  ::kill(-child, SIGKILL);
  ::kill(child, SIGKILL);  // serves a child that did not have the time to lead its group
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

}  // namespace

IsolatedResult run_isolated(const std::function<void(const Say& say)>& body,
                            std::chrono::milliseconds limit) {
  Pipe pipe = make_pipe();
  const pid_t child = ::fork();
  if (child < 0) throw_error(ErrorCode::storage, "cannot start a process: ", std::strerror(errno));
  if (child == 0) run_child(pipe.write.get(), body);
  pipe.write = FileDescriptor();
  IsolatedResult result;
  const bool ended = wait_for(child, pipe.read.get(), result.output, limit);
  const int status = reap(child);
  result.ending = ended ? describe_end(status) : detail::concat("took longer than ", limit.count(), " ms");
  result.returned = !result.output.empty() && result.output.back() == returned_mark;
  if (result.returned) result.output.pop_back();
  return result;
}

void check_alike_elsewhere(const char* call, const std::function<std::string()>& write) {
  const std::string here = sha256_hex(write());
  const IsolatedResult other = run_isolated(
      [&](const Say& say) {
        try {
          say(sha256_hex(write()));
        } catch (const Error& error) {
          say(error.what());
        }
      },
      std::chrono::seconds(30));
  if (!other.returned)
    throw_error(ErrorCode::bad_input, call, " in another process: the plugin ", other.ending);
  if (other.output != here)
    throw_error(ErrorCode::bad_input, call,
                " writes another program in another process; it must be the same for the same options, since "
                "every rank writes it");
}

namespace {

// ------------------------------------------------------------------- conformance

namespace fs = std::filesystem;

enum Number : int {
  readable_note = 1,
  file_name,
  trusted,
  compatible,
  readable_options,
  exports_entry_only,
  uses_sdk_only,
  loads,
  right_descriptor,
  repeated_create,
  two_at_once,
  unreadable_options,
  first_of_kind,
};

constexpr int create_rounds = 1000;

std::vector<ContractCheck> all_checks() {
  return {{readable_note, "is a shared library with a readable PRUN note", {}, {}},
          {file_name, "is called libprun_<kind>_<name>.so after its note", {}, {}},
          {trusted, "can be changed by nobody but root and the user", {}, {}},
          {compatible, "was built for this prun's epoch, ABI and interface layout", {}, {}},
          {readable_options, "declares options and traits that can be read", {}, {}},
          {exports_entry_only, "exports prun_plugin_v1 and nothing else", {}, {}},
          {uses_sdk_only, "uses nothing of prun but what the SDK library defines", {}, {}},
          {loads, "loads, with every symbol found and an entry of its own", {}, {}},
          {right_descriptor, "returns a descriptor that agrees with its note", {}, {}},
          {repeated_create,
           "creates and destroys an object 1000 times, or refuses cleanly where an option is required",
           {},
           {}},
          {two_at_once, "can have two objects at once", {}, {}},
          {unreadable_options, "answers options it cannot read with an error, not with a crash", {}, {}}};
}

ContractCheck& check_of(std::vector<ContractCheck>& checks, int number) {
  return checks.at(static_cast<std::size_t>(number - 1));
}

// ---------------------------------------------------------------- of the file

// Says whether a symbol is one that a linker adds by itself.
bool is_linkers(std::string_view symbol) {
  constexpr std::string_view names[] = {"_init", "_fini", "_edata", "_end", "__bss_start"};
  return std::find(std::begin(names), std::end(names), symbol) != std::end(names);
}

// Says whether a symbol is a C symbol of prun, or a C++ symbol in or about namespace prun.
bool is_pruns(std::string_view symbol) {
  return symbol.starts_with("prun_") || (symbol.starts_with("_Z") && (symbol.find("N4prun") != symbol.npos ||
                                                                      symbol.find("NK4prun") != symbol.npos));
}

std::string list_of(const std::vector<std::string>& names) {
  constexpr std::size_t shown = 5;
  std::string text;
  for (std::size_t i = 0; i < std::min(shown, names.size()); ++i) text += (i ? ", " : "") + names[i];
  return names.size() > shown ? detail::concat(text, " and ", names.size() - shown, " more") : text;
}

void require_symbols(const PluginNote& note) {
  if (!note.has_symbol_table)
    throw_error(ErrorCode::bad_input, "its section headers were removed, so its symbols cannot be read");
}

void check_file_name(const fs::path& path, const PluginNote& note) {
  const std::string expected = plugin_file_name(note.kind, note.name);
  if (path.filename() != expected) throw_error(ErrorCode::bad_input, "it must be called ", expected);
}

void check_compatible(const PluginNote& note) {
  const std::string reason = incompatibility(note);
  if (!reason.empty()) throw_error(ErrorCode::bad_input, reason);
}

// Compares what may be varied with the existing options. Plugins of other kinds, which some options may name,
// are those that there are.
void check_traits(const PluginNote& note) {
  const std::string problem = traits_problem(note);
  if (!problem.empty()) throw_error(ErrorCode::bad_input, problem);
  if (note.kind != "strategy") return;
  PluginHost plugins(plugin_places_of({}, {}));
  variables_of(note, plugins);
}

void check_exports(const PluginNote& note) {
  require_symbols(note);
  std::vector<std::string> others;
  bool found = false;
  for (const std::string& symbol : note.exports) {
    if (symbol == entry_symbol)
      found = true;
    else if (!is_linkers(symbol))
      others.push_back(symbol);
  }
  if (!found) throw_error(ErrorCode::bad_input, "it does not export ", entry_symbol);
  if (!others.empty())
    throw_error(ErrorCode::bad_input, "it also exports ", list_of(others),
                "; build it with prun_add_plugin(), which hides all but the entry");
}

void check_uses(const PluginNote& note) {
  require_symbols(note);
  constexpr std::string_view anchor = "prun_sdk_epoch_10_itanium_libstdcxx11";
  std::vector<std::string> others;
  for (const std::string& symbol : note.undefined)
    if (is_pruns(symbol) && symbol != anchor) others.push_back(symbol);
  if (!others.empty())
    throw_error(ErrorCode::bad_input, "it expects ", list_of(others),
                ", which the SDK library does not define");
  if (std::find(note.undefined.begin(), note.undefined.end(), anchor) == note.undefined.end())
    throw_error(ErrorCode::bad_input, "it does not refer to ", anchor, "; link it with prun::sdk");
}

// Runs one check here; returns true when it passed.
template <class Body>
bool attempt(std::vector<ContractCheck>& checks, int number, Body&& body) {
  ContractCheck& check = check_of(checks, number);
  try {
    check.detail = body();
    check.verdict = CheckVerdict::passed;
    return true;
  } catch (const std::exception& error) {
    check.detail = error.what();
    check.verdict = CheckVerdict::failed;
    return false;
  }
}

// Calls a function that only throws.
template <class Body>
auto quietly(Body body) {
  return [body] {
    body();
    return std::string();
  };
}

struct Subject {
  fs::path path;
  PluginNote note;
  DefaultOptions options;
  std::vector<KindCheck> kind_checks;
};

// Returns nothing when the plugin's code must not or cannot be run.
std::optional<Subject> check_file(const fs::path& path, const DefaultOptionsFor& defaults,
                                  std::vector<ContractCheck>& checks) {
  Subject subject{path, {}, {}, {}};
  const PluginNote& note = subject.note;
  if (!attempt(checks, readable_note, quietly([&] { subject.note = read_note(path); }))) return std::nullopt;
  attempt(checks, file_name, quietly([&] { check_file_name(path, note); }));
  const bool safe = attempt(checks, trusted, [&] { return join(open_trusted(path).warnings, "; "); });
  const bool fits = attempt(checks, compatible, quietly([&] { check_compatible(note); }));
  const bool options = attempt(checks, readable_options, quietly([&] {
                                 check_traits(note);
                                 subject.options = defaults(note);
                               }));
  attempt(checks, exports_entry_only, quietly([&] { check_exports(note); }));
  attempt(checks, uses_sdk_only, quietly([&] { check_uses(note); }));
  if (!safe || !fits || !options) return std::nullopt;
  return subject;
}

// ---------------------------------------------------------------- in the child

std::string on_one_line(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

// Reports one check to the parent; returns true when it passed.
template <class Body>
bool report(const Say& say, int number, Body&& body) {
  say("begin " + std::to_string(number) + "\n");
  CheckFinding finding;
  const Status status = guard([&] { finding = body(); });
  const char* const verdict = !status.ok() ? "failed " : finding.checked ? "passed " : "skipped ";
  const std::string detail = status.ok() ? finding.detail : std::string(status.message);
  say(verdict + std::to_string(number) + " " + on_one_line(detail) + "\n");
  return status.ok();
}

// Reports a check that only passes or throws.
template <class Body>
auto without_finding(Body body) {
  return [body] {
    body();
    return CheckFinding{};
  };
}

std::string create_repeatedly(const PluginLibrary& library, const DefaultOptions& options) {
  for (int round = 0; round < create_rounds; ++round) {
    try {
      library.destroy_raw(library.create_raw(options.api));
    } catch (const Error& error) {
      // The same refusal in every round is clean; a refusal after a success is not.
      if (options.required.empty() || error.code() == ErrorCode::internal || round > 0) throw;
      return detail::concat("refused cleanly: ", error.what());
    }
  }
  return "";
}

std::string create_two(const PluginLibrary& library, const DefaultOptions& options) {
  void* const first = library.create_raw(options.api);
  void* const second = library.create_raw(options.api);
  const bool same = first == second;
  library.destroy_raw(first);
  if (same) throw_error(ErrorCode::bad_input, "it gave the same object twice");
  library.destroy_raw(second);
  return "";
}

template <class... Arguments>
Status cannot_read(void*, Text key, Arguments...) {
  return Status::failure(ErrorCode::bad_input, detail::concat("option '", key.view(), "' cannot be read"));
}

// Makes options that all fail to be read.
std::string create_unreadable(const PluginLibrary& library) {
  const OptionsApi api{sizeof(OptionsApi), nullptr,     cannot_read, cannot_read, cannot_read,
                       cannot_read,        cannot_read, cannot_read, cannot_read, cannot_read};
  try {
    library.destroy_raw(library.create_raw(api));
  } catch (const Error& error) {
    if (error.code() == ErrorCode::internal) throw;
    return "";
  }
  return "it reads no option when it is created";
}

CheckFinding check_kind(const Say& say, const PluginLibrary& library, const Subject& subject,
                        const KindCheck& check) {
  const auto create = [&](const OptionsApi& options) {
    return std::shared_ptr<void>(library.create_raw(options),
                                 [&](void* object) { library.destroy_raw(object); });
  };
  std::string last;
  const auto doing = [&](std::string_view what) {
    if (std::exchange(last, what) != what) say("doing " + on_one_line(std::string(what)) + "\n");
  };
  const OptionsApi& options = subject.options.api;
  const std::shared_ptr<void> object = create(options);
  return check.run({object.get(), library.note(), subject.path, create, options, doing});
}

CheckFinding unchecked_without(const std::vector<std::string>& required) {
  return {"not checked: it has no default for " + join(required, ", ") + "; give that by --options", false};
}

void check_running(const Say& say, const Subject& subject) {
  MappedPlugin mapped;
  std::shared_ptr<const PluginLibrary> library;
  if (!report(say, loads, without_finding([&] { mapped = map_plugin(subject.path); }))) return;
  if (!report(say, right_descriptor,
              without_finding([&] { library = PluginLibrary::load(std::move(mapped)); })))
    return;
  std::string refusal;
  const DefaultOptions& options = subject.options;
  const bool created = report(say, repeated_create,
                              [&] { return CheckFinding{refusal = create_repeatedly(*library, options)}; });
  if (created && refusal.empty())
    report(say, two_at_once, [&] { return CheckFinding{create_two(*library, options)}; });
  report(say, unreadable_options, [&] { return CheckFinding{create_unreadable(*library)}; });
  if (!created) return;
  int number = first_of_kind;
  for (const KindCheck& check : subject.kind_checks)
    report(say, number++, [&] {
      return refusal.empty() ? check_kind(say, *library, subject, check)
                             : unchecked_without(options.required);
    });
}

// ---------------------------------------------------------------- from the child

// Names the check that was under way last, and the part of it.
struct UnderWay {
  int number = 0;
  std::string doing;
};

CheckVerdict verdict_of(std::string_view word) {
  return word == "passed"   ? CheckVerdict::passed
         : word == "failed" ? CheckVerdict::failed
                            : CheckVerdict::not_run;
}

void note_line(std::string_view line, std::vector<ContractCheck>& checks, UnderWay& under_way) {
  const std::size_t first = line.find(' '), second = line.find(' ', first + 1);
  const std::string_view word = line.substr(0, first);
  if (first == line.npos) return;
  if (word == "doing") {
    under_way.doing = printable(line.substr(first + 1), 200);
    return;
  }
  const int number = std::atoi(std::string(line.substr(first + 1, second - first - 1)).c_str());
  if (number < loads || number > static_cast<int>(checks.size())) return;
  under_way = {word == "begin" ? number : 0, {}};
  if (word == "begin") return;
  ContractCheck& check = check_of(checks, number);
  check.verdict = verdict_of(word);
  if (second != line.npos) check.detail = printable(line.substr(second + 1), 1000);
}

void note_result(const IsolatedResult& result, std::vector<ContractCheck>& checks) {
  UnderWay under_way;
  for (const std::string_view line : split(result.output, '\n')) note_line(line, checks, under_way);
  if (result.returned) return;
  // A plugin may also die between two checks, such as in a thread of its own.
  ContractCheck& check = check_of(checks, under_way.number ? under_way.number : static_cast<int>(loads));
  check.verdict = CheckVerdict::failed;
  check.detail = "the plugin " + result.ending + (under_way.doing.empty() ? "" : " in " + under_way.doing);
}

std::string name_of(const ContractCheck& check) {
  std::string digits = std::to_string(check.number);
  digits.insert(0, 3 - std::min<std::size_t>(3, digits.size()), '0');
  return "PRUN-PLG-" + digits;
}

}  // namespace

std::string to_text(const ContractCheck& check) {
  constexpr const char* words[] = {"not run", "passed ", "FAILED "};
  return name_of(check) + "  " + words[static_cast<int>(check.verdict)] + "  " + check.text +
         (check.detail.empty() ? "" : ": " + check.detail);
}

std::vector<ContractCheck> check_plugin(const fs::path& path, const DefaultOptionsFor& defaults,
                                        std::chrono::milliseconds limit,
                                        const std::vector<KindCheck>& kind_checks) {
  std::vector<ContractCheck> checks = all_checks();
  auto subject = check_file(path, defaults, checks);
  if (!subject) return checks;
  for (const KindCheck& check : kind_checks) {
    if (check.kind != subject->note.kind) continue;
    checks.push_back({static_cast<int>(checks.size()) + 1, check.text, {}, {}});
    subject->kind_checks.push_back(check);
  }
  note_result(run_isolated([&](const Say& say) { check_running(say, *subject); }, limit), checks);
  return checks;
}

bool conforms(const std::vector<ContractCheck>& checks) {
  return std::none_of(checks.begin(), checks.end(),
                      [](const ContractCheck& check) { return check.verdict == CheckVerdict::failed; });
}

std::string not_run(const std::vector<ContractCheck>& checks) {
  std::vector<std::string> names;
  for (const ContractCheck& check : checks)
    if (check.verdict == CheckVerdict::not_run) names.push_back(name_of(check));
  return join(names, ", ");
}

}  // namespace prun
