// Runs the numbered checks. Those of the file run here; those that run the plugin's code report from a child,
// line by line: "begin 8", "doing the kernel of op 'x'", "passed 8", "failed 8 why", "skipped 8 why".
#include "conform/conformance.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/text.hpp"
#include "conform/isolated.hpp"
#include "plugin/compatibility.hpp"
#include "plugin/discovery.hpp"
#include "plugin/loader.hpp"
#include "plugin/traits.hpp"
#include "plugin/trust.hpp"
#include "search/variables.hpp"

namespace prun {
namespace {

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
