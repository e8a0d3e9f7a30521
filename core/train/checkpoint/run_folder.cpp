#include "train/checkpoint/run_folder.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <sstream>

#include "base/json.hpp"
#include "base/narrow.hpp"
#include "base/text.hpp"
#include "train/checkpoint/checkpoint_folder.hpp"

namespace prun {
namespace {

namespace fs = std::filesystem;

constexpr const char* lock_name = "run.lock";
// These files are replaced under their names, and those truncated or appended to.
constexpr const char* replaced_names[] = {"run.id", "recipe.toml", "plugins.json", "latest"};
constexpr const char* appended_names[] = {lock_name, "log.jsonl"};
// Every run writes these first.
constexpr const char* marks_of_a_run[] = {"recipe.toml", "plugins.json", "log.jsonl", "latest"};

// ------------------------------------------------------------------- who holds it

struct Holder {
  std::string run, host;
  std::int64_t pid = 0;
  std::int64_t started = 0;  // start time as /proc counts it; together with the pid it names one process
  std::string command;       // command that has it in place of a run; empty: a run
};

std::string this_host() {
  char name[256] = "";
  ::gethostname(name, sizeof name - 1);
  return name;
}

// Returns the 22nd word of /proc/PID/stat; the second is in parentheses and may hold any byte. 0 means that
// there is none.
std::int64_t start_of_process(std::int64_t pid) {
  std::ifstream file(detail::concat("/proc/", pid, "/stat"));
  std::string text((std::istreambuf_iterator<char>(file)), {});
  std::istringstream words(text.substr(std::min(text.size(), text.rfind(')') + 1)));
  std::string word;
  for (int number = 3; number < 22; ++number) words >> word;
  std::int64_t start = 0;
  words >> start;
  return start;
}

std::string to_text(const Holder& holder) {
  JsonWriter json;
  json.begin_object().member("run", holder.run).member("host", holder.host).member("pid", holder.pid);
  json.member("started", holder.started);
  if (!holder.command.empty()) json.member("command", holder.command);
  return json.end_object().take() + "\n";
}

// Returns nothing if a process died before it had written all.
std::optional<Holder> read_holder(const FileDescriptor& lock, const fs::path& path) {
  char text[4096];
  const ssize_t count = lock.is_open() ? ::pread(lock.get(), text, sizeof text, 0) : 0;
  if (count <= 0) return {};
  try {
    const JsonValue json = parse_json(std::string_view(text, static_cast<std::size_t>(count)), path.string());
    const JsonValue* const command = json.find("command");
    return Holder{json.at("run").as_string(), json.at("host").as_string(), json.at("pid").as_int64(),
                  json.at("started").as_int64(), command ? command->as_string() : std::string()};
  } catch (const Error&) {
    return {};
  }
}

bool is_alive(const Holder& holder) {
  return holder.started != 0 && start_of_process(holder.pid) == holder.started;
}

// Returns a text such as "the run 'first' (pid 17 on node3)".
std::string text_of(const Holder& holder) {
  return detail::concat(holder.command.empty() ? "the run " + in_quotes(holder.run) : holder.command,
                        " (pid ", holder.pid, " on ", holder.host, ")");
}

// `instead` says what the user who wants the folder may do.
[[noreturn]] void refuse_second(const fs::path& folder, const std::optional<Holder>& holder,
                                std::string_view instead) {
  throw_error(ErrorCode::bad_input, folder.string(), " is in use by ",
              holder ? text_of(*holder) : "another run", "; ", instead);
}

void check_holder(const fs::path& folder, const Holder& holder, std::string_view instead) {
  if (holder.host != this_host())
    throw_error(ErrorCode::bad_input, folder.string(), " was in use by ", text_of(holder),
                ", which cannot be asked from here; if it is over, ", "remove ",
                (folder / lock_name).string());
  if (is_alive(holder)) refuse_second(folder, holder, instead);
}

constexpr std::string_view for_a_run = "wait for it, stop it, or give this run another run.out";
constexpr std::string_view for_a_command =
    "wait for it or stop it; what a run keeps as it goes on, run.keep and run.keep_every of its recipe say";

// ------------------------------------------------------------------- the folder

// Throws an error that the user can correct, unless a disk is full or broken.
[[noreturn]] void throw_cannot(const char* action, const fs::path& path, int error) {
  if (error == ENOSPC || error == EDQUOT || error == EIO) throw_storage_error(action, path, error);
  throw_error(ErrorCode::bad_input, "cannot ", action, " the run folder ", path.string(), ": ",
              std::generic_category().message(error), "; choose another with run.out");
}

// Follows links, so that what is moved aside is the folder and not the link to it.
fs::path real_path(const fs::path& path) {
  std::error_code ignored;
  const fs::path real = fs::weakly_canonical(fs::absolute(path, ignored), ignored);
  return real.empty() ? path : real.has_filename() ? real : real.parent_path();
}

bool holds_a_run(const fs::path& folder) {
  std::error_code ignored;
  for (const char* mark : marks_of_a_run)
    if (fs::exists(fs::symlink_status(folder / mark, ignored))) return true;
  return false;
}

bool continues(const Recipe& recipe, const fs::path& folder) {
  const std::string& resume = recipe.text("run.resume");
  if (resume.empty()) return false;
  const fs::path way = real_path(resume).lexically_relative(folder);
  return !way.empty() && *way.begin() != "..";
}

fs::path first_free(const fs::path& folder) {
  std::error_code ignored;
  for (int number = 1;; ++number) {
    fs::path name = folder;
    name += "." + std::to_string(number);
    if (!fs::exists(fs::symlink_status(name, ignored))) return name;
  }
}

// A run can be resumed without `latest` too, where it was killed in its first save.
bool can_be_resumed(const fs::path& folder) {
  std::error_code ignored;
  if (fs::exists(folder / "latest", ignored)) return true;
  try {
    return !note_without_latest(folder).empty();
  } catch (const Error&) {
    return false;
  }
}

[[noreturn]] void refuse_taken(const fs::path& folder, const fs::path& shown) {
  throw_error(
      ErrorCode::bad_input, shown.string(), " holds a run already; ",
      can_be_resumed(folder) ? "go on with it by --set run.resume=" + shown.string() + ", " : std::string(),
      "move it to ", first_free(shown).string(),
      " by --set run.fresh=true, or give this run another run.out");
}

[[noreturn]] void refuse_link(const fs::path& path, const char* kind) {
  throw_error(
      ErrorCode::bad_input, path.string(), " is ", kind,
      ": what a run writes there would change a file elsewhere; remove it, or put a copy in its place");
}

bool has_other_names(const struct stat& file) { return S_ISREG(file.st_mode) && file.st_nlink > 1; }

// Returns, besides files with a name of prun's, all logs: observers and comm plugins have one each.
std::vector<fs::path> appended_files(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const char* name : appended_names) files.push_back(folder / name);
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(folder, none))
    if (entry.path().extension() == ".log") files.push_back(entry.path());
  return files;
}

void refuse_links_in(const fs::path& folder) {
  struct stat facts {};
  for (const char* name : replaced_names)
    if (::lstat((folder / name).c_str(), &facts) == 0 && S_ISLNK(facts.st_mode))
      refuse_link(folder / name, "a link");
  for (const fs::path& path : appended_files(folder)) {
    if (::lstat(path.c_str(), &facts) != 0) continue;
    if (S_ISLNK(facts.st_mode)) refuse_link(path, "a link");
    if (has_other_names(facts)) refuse_link(path, "a file that has another name as well");
  }
}

struct Locked {
  FileDescriptor folder, lock;
};

// Returns nothing if the folder was moved away meanwhile: then the caller tries again.
std::optional<Locked> lock_folder(const fs::path& folder, std::string_view instead) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw_cannot("create", folder, error.value());
  Locked locked;
  locked.folder = FileDescriptor(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!locked.folder.is_open()) throw_cannot("open", folder, errno);
  refuse_links_in(folder);
  locked.lock = FileDescriptor(
      ::openat(locked.folder.get(), lock_name, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0666));
  if (!locked.lock.is_open()) throw_cannot("write into", folder, errno);
  const bool taken = !lock_as_own(locked.lock);
  const std::optional<Holder> holder = read_holder(locked.lock, folder / lock_name);
  if (taken) refuse_second(folder, holder, instead);
  if (!names(folder / lock_name, locked.lock)) return {};
  if (holder) check_holder(folder, *holder, instead);
  return locked;
}

// Writes into the lock file that was just found to have no other name.
void write_holder(const FileDescriptor& lock, const std::string& run, const std::string& command,
                  const fs::path& folder) {
  struct stat facts {};
  if (::fstat(lock.get(), &facts) != 0 || !S_ISREG(facts.st_mode) || has_other_names(facts))
    refuse_link(folder / lock_name, "no file of its own");
  const std::string text = to_text({run, this_host(), ::getpid(), start_of_process(::getpid()), command});
  if (::ftruncate(lock.get(), 0) != 0) throw_storage_error("write", folder / lock_name, errno);
  write_fully(lock.get(), std::as_bytes(std::span(text)), folder / lock_name);
}

}  // namespace

fs::path run_folder(const Recipe& recipe) {
  const std::string& out = recipe.text("run.out");
  return out.empty() ? fs::path("runs") / recipe.text("run.name") : fs::path(out);
}

void make_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error)
    throw_error(ErrorCode::storage, "cannot create the run folder ", folder.string(), ": ", error.message());
}

fs::path existing_folder(const fs::path& folder) {
  fs::path there = real_path(folder);
  std::error_code ignored;
  while (!fs::is_directory(there, ignored) && there.has_relative_path()) there = there.parent_path();
  return there;
}

std::int64_t free_bytes(const fs::path& folder) {
  struct statvfs facts {};
  const fs::path there = existing_folder(folder);
  if (::statvfs(there.c_str(), &facts) != 0) throw_storage_error("ask for free space of", there, errno);
  return bytes_left(facts);
}

void check_run_folder(const Recipe& recipe) {
  const fs::path folder = run_folder(recipe);
  fs::path there = real_path(folder);
  std::error_code ignored;
  while (!fs::exists(there, ignored) && there.has_relative_path()) there = there.parent_path();
  if (!fs::is_directory(there, ignored)) throw_cannot("create", folder, ENOTDIR);
  if (::faccessat(AT_FDCWD, there.c_str(), W_OK | X_OK, AT_EACCESS) != 0)
    throw_cannot("write into", folder, errno);
}

std::optional<RunHolder> holder_of(const fs::path& folder) {
  const fs::path path = folder / lock_name;
  const FileDescriptor lock(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
  const std::optional<Holder> holder = read_holder(lock, path);
  if (!holder || !holder->command.empty()) return {};
  const bool here = holder->host == this_host();
  return RunHolder{holder->run, holder->host, holder->pid, here, here && is_alive(*holder)};
}

RunClaim::RunClaim(const Recipe& recipe) {
  const fs::path shown = run_folder(recipe), folder = real_path(shown);
  for (;;) {
    std::optional<Locked> locked = lock_folder(folder, for_a_run);
    if (!locked) continue;
    folder_ = std::move(locked->folder);
    lock_ = std::move(locked->lock);
    clear_dead_in(folder);
    if (!holds_a_run(folder) || continues(recipe, folder)) break;
    if (!recipe.flag("run.fresh")) {
      ::unlinkat(folder_.get(), lock_name, 0);
      refuse_taken(folder, shown);
    }
    const fs::path aside = first_free(folder);
    if (::rename(folder.c_str(), aside.c_str()) != 0) throw_cannot("move aside", folder, errno);
    ::unlinkat(folder_.get(), lock_name, 0);
    moved_to_ = aside;
  }
  write_holder(lock_, recipe.text("run.name"), {}, folder);
  lock_file_.emplace([&] { return folder / lock_name; });
}

// Processes that wait queue at the system's lock on the folder itself.
RunClaim::RunClaim(const fs::path& shown, const std::string& command) {
  const fs::path folder = real_path(shown);
  folder_ = open_folder(folder);
  while (::flock(folder_.get(), LOCK_EX) != 0 && errno == EINTR) continue;
  std::optional<Locked> locked;
  while (!(locked = lock_folder(folder, for_a_command))) continue;
  lock_ = std::move(locked->lock);
  write_holder(lock_, {}, command, folder);
  lock_file_.emplace([&] { return folder / lock_name; });
}

// Removes the lock in the folder that it was made in, wherever that is now.
RunClaim::~RunClaim() {
  if (lock_file_) lock_file_->leave([&] { ::unlinkat(folder_.get(), lock_name, 0); });
}

FolderInPlace::FolderInPlace(fs::path folder)
    : path_(std::move(folder)), folder_(::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  if (!folder_.is_open()) throw_storage_error("open", path_, errno);
}

void FolderInPlace::check() const {
  if (!names(path_, folder_))
    throw_error(ErrorCode::storage, "the run folder ", path_.string(),
                " was removed or replaced while the run wrote into it; nothing more can be saved there");
}

}  // namespace prun
