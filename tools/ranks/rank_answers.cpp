#include "ranks/rank_answers.hpp"

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <numeric>

#include "train/assemble/batch_arithmetic.hpp"
#include "train/assemble/host_limits.hpp"
#include "train/loop/local_ranks.hpp"
#include "train/loop/rank.hpp"

namespace prun {
namespace {

namespace fs = std::filesystem;

// This variable names the folder where processes leave their answers; it is set for those that are asked.
constexpr const char* folder_variable = "PRUN_ANSWERS";

fs::path answer_of(const fs::path& folder, std::int64_t rank) { return folder / std::to_string(rank); }

// Makes a folder that is removed when the answers have been read.
class AnswerFolder {
 public:
  AnswerFolder() {
    std::string name = (fs::temp_directory_path() / "prun-answers-XXXXXX").string();
    if (!::mkdtemp(name.data()))
      throw_error(ErrorCode::storage, "no folder can be made in ", fs::temp_directory_path().string(),
                  " for what the ranks answer; set TMPDIR to one that can be written");
    path_ = name;
  }
  ~AnswerFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  AnswerFolder(const AnswerFolder&) = delete;
  AnswerFolder& operator=(const AnswerFolder&) = delete;

  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

std::string read(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  if (!in) throw_error(ErrorCode::storage, file.string(), " cannot be read");
  return text;
}

void write(const fs::path& file, const std::string& text) {
  std::ofstream out(file, std::ios::binary);
  out << text;
  if (!out.flush()) throw_error(ErrorCode::storage, file.string(), " cannot be written");
}

ErrorCode error_of(int code) {
  for (const ErrorCode error : {ErrorCode::bad_input, ErrorCode::rank_died, ErrorCode::hang,
                                ErrorCode::comm_failed, ErrorCode::storage, ErrorCode::diverged})
    if (exit_code(error) == code) return error;
  return ErrorCode::internal;
}

std::vector<std::string> threads(const Recipe& recipe, const std::vector<SearchPlace>& places,
                                 const Question& question) {
  std::vector<std::string> answers(static_cast<std::size_t>(mesh_of(recipe).world()));
  run_local_ranks(
      without_ramp(recipe), places,
      [&](Trainer& trainer) {
        answers[static_cast<std::size_t>(trainer.assembly().rank())] = question.body(trainer);
      },
      question.probes);
  return answers;
}

// Launches quietly: what the launcher reports of a failure becomes the error.
int launch_quietly(LaunchOptions options, std::string& said) {
  options.say = [&said](std::string_view line) {
    constexpr std::string_view name = "prun: ";
    if (said.empty() && line.substr(0, name.size()) == name) line.remove_prefix(name.size());
    (said += said.empty() ? "" : "\n") += line;
  };
  return launch(options);
}

}  // namespace

std::vector<std::string> ask_processes(const Recipe& recipe, PluginHost& plugins,
                                       const std::vector<std::string>& command, Purpose purpose) {
  std::string said;
  int code = 0;
  std::vector<std::string> answers;
  {
    const AnswerFolder folder;
    plugins.set_local({0, static_cast<int>(mesh_of(recipe).world()), true, true});
    LaunchOptions options = ranks_of(Assembly(recipe, plugins, 0, purpose), plugins, command, folder.path());
    options.environment.emplace_back(folder_variable, folder.path());
    code = launch_quietly(options, said);
    for (int rank = 0; code == 0 && rank < options.ranks; ++rank)
      answers.push_back(read(answer_of(folder.path(), rank)));
  }
  if (code > 128) std::raise(code - 128);
  if (code != 0) throw_error(error_of(code), said);
  return answers;
}

bool ranks_are_processes(const Recipe& recipe, PluginHost& plugins) {
  DeviceInfo device;
  const auto made = plugins.create<DeviceInterface>("device", recipe.section("device"));
  raise(made->info(&device));
  return device.one_process_each && mesh_of(recipe).world() > 1;
}

std::vector<std::string> ask_ranks(const Recipe& recipe, const std::vector<SearchPlace>& places,
                                   const MakeQuestion& question, const std::vector<std::string>& command) {
  PluginHost plugins(places);
  if (!command.empty() && ranks_are_processes(recipe, plugins))
    return ask_processes(recipe, plugins, command);
  if (mesh_of(recipe).world() > 1) make_room_for_threads(Assembly(recipe, plugins), plugins);
  return threads(recipe, places, question({}));
}

bool is_asked() { return std::getenv(folder_variable) != nullptr; }

std::optional<Identity> asked_rank() { return is_asked() ? identity_from_environment() : std::nullopt; }

namespace {

// Does the work of a process that is one of the ranks.
int as_member(Session& session, const Recipe& recipe, const std::vector<SearchPlace>& places,
              const std::function<void(const Member& member)>& work) {
  return end_as_rank(session, [&] {
    const Identity& identity = session.identity();
    check_world(identity, recipe);
    const LocalPlace place{identity.local_rank, identity.local_world};
    PluginHost plugins(places);
    plugins.set_local(place);
    return with_membership(session, recipe, [&](const Membership& membership) {
      work({plugins, membership, identity.rank, place});
      return 0;
    });
  });
}

}  // namespace

int answer_as_member(const Recipe& recipe, const std::vector<SearchPlace>& places,
                     const std::function<std::string(const Member& member)>& body) {
  const std::unique_ptr<Session> session = Session::join();
  if (!session)
    throw_error(ErrorCode::bad_input, folder_variable, " is set, and this process is no rank; unset it");
  return as_member(*session, recipe, places, [&](const Member& member) {
    write(answer_of(std::getenv(folder_variable), member.rank), body(member));
  });
}

std::optional<Identity> launched_rank() {
  std::optional<Identity> identity = identity_from_environment();
  if (is_asked() || !identity || identity->how == "prun" || identity->world == 1) return {};
  return identity;
}

int answer_each_other(const Recipe& recipe, const std::vector<SearchPlace>& places,
                      const std::function<std::string(const Member& member)>& body,
                      const std::function<void(const std::vector<std::string>& answers)>& take) {
  const std::unique_ptr<Session> session = Session::join();
  PRUN_CHECK(session, "no rank of a launcher");
  return as_member(*session, recipe, places, [&](const Member& member) {
    std::vector<int> all(static_cast<std::size_t>(session->identity().world));
    std::iota(all.begin(), all.end(), 0);
    const std::vector<std::string> answers = member.membership.exchange("answers", all, body(member));
    if (member.rank == 0) take(answers);
  });
}

int answer(const Recipe& recipe, const std::vector<SearchPlace>& places, const MakeQuestion& make) {
  return answer_as_member(recipe, places, [&](const Member& member) {
    const Question question = make(member.place);
    const Assembly assembly(without_ramp(recipe), member.plugins, member.rank);
    if (question.probes && member.rank == 0) assembly.check_no_deadlock(true);
    Membership membership = member.membership;
    membership.full_steps = static_cast<bool>(question.probes);
    membership.probes = [&](const Assembly& of, Communicators* with) {
      std::vector<Probe*> probes = member.membership.probes(of, with);
      const std::vector<Probe*> own = question.probes ? question.probes(of, with) : std::vector<Probe*>{};
      probes.insert(probes.end(), own.begin(), own.end());
      return probes;
    };
    Trainer trainer(assembly, member.plugins, membership);
    return question.body(trainer);
  });
}

}  // namespace prun
