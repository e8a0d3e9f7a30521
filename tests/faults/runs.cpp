#include "runs.hpp"

#include <dirent.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <random>

#include "base/safetensors.hpp"
#include "launch/identity.hpp"
#include "support/assembly_fixture.hpp"
#include "support/temp_folder.hpp"

namespace prun::test {

namespace fs = std::filesystem;

namespace {

constexpr const char* tag_name = "PRUN_TEST_TAG";

std::string new_tag() {
  static int number = 0;
  return std::to_string(::getpid()) + "-" + std::to_string(number++);
}

Variables tagged(Variables variables, const std::string& tag) {
  variables.emplace_back(tag_name, tag);
  variables.emplace_back("PATH", "/usr/bin:/bin");
  return variables;
}

// A process that has ended, even if nobody has asked for it yet, has no environment any more.
bool has_setting(pid_t pid, const std::string& setting) {
  const std::string all = '\0' + read_file("/proc/" + std::to_string(pid) + "/environ");
  return all.find('\0' + setting + '\0') != std::string::npos;
}

std::set<pid_t> processes_with(const std::string& setting) {
  std::set<pid_t> found;
  for (const auto& entry : fs::directory_iterator("/proc"))
    if (const pid_t pid = std::atoi(entry.path().filename().c_str()); pid > 0 && has_setting(pid, setting))
      found.insert(pid);
  return found;
}

}  // namespace

bool is_long() { return std::getenv("PRUN_LONG") != nullptr; }

unsigned test_seed() {
  const char* given = std::getenv("PRUN_TEST_SEED");
  const unsigned seed = given ? static_cast<unsigned>(std::atoi(given)) : std::random_device()() % 1'000'000;
  std::printf("seed: PRUN_TEST_SEED=%u\n", seed);
  return seed;
}

// ------------------------------------------------------------------- runs

std::string out_folder(const std::string& name) { return (temporary_folder() / ("out-" + name)).string(); }

std::string layout_file(const std::string& name, const std::string& text,
                        const std::vector<std::string>& sets) {
  std::vector<std::string> all = {"observer.0.plugin=console", "run.out=" + out_folder(name)};
  all.insert(all.end(), sets.begin(), sets.end());
  const fs::path path = temporary_folder() / (name + ".toml");
  std::ofstream(path) << tiny_recipe(all, text).resolved_toml();
  return path.string();
}

std::string recipe_file(const std::string& name, int ranks, const std::vector<std::string>& sets) {
  std::vector<std::string> all = {"batch.global=" + std::to_string(4 * ranks)};
  all.insert(all.end(), sets.begin(), sets.end());
  return layout_file(name, ranks > 1 ? data_parallel(ranks) : std::string(), all);
}

// The second one's exchanges go through pinned memory, on threads that its queues wait for.
std::vector<RunDevice> run_devices() { return {{"cpu", {}}, {"async", {"device.plugin=cpu-async"}}}; }

std::vector<std::string> with_test_plugins(const std::string& recipe) {
  return {recipe, "--plugin-path", PRUN_TEST_PLUGINS "/test"};
}

PrunRun::PrunRun(const std::vector<std::string>& words, Variables variables)
    : tag_(new_tag()), process_(words, tagged(std::move(variables), tag_)) {}

std::set<pid_t> PrunRun::alive() const { return processes_with(std::string(tag_name) + "=" + tag_); }

pid_t PrunRun::process_with(const std::string& setting) const {
  for (const auto start = Clock::now(); seconds_since(start) < patience; ::usleep(500))
    for (const pid_t pid : alive())
      if (has_setting(pid, setting)) return pid;
  return -1;
}

std::optional<double> PrunRun::seconds_until_gone(double limit) const {
  for (const auto start = Clock::now(); seconds_since(start) < limit; ::usleep(1000))
    if (alive().empty()) return seconds_since(start);
  return {};
}

bool PrunRun::goes_on(int steps) { return process_.says(" | loss ", count_of(output(), " | loss ") + steps); }

int PrunRun::stop_and_save(int signal) {
  process_.signal(signal);
  return process_.end() == 128 + signal ? process_.number_after("stopped at step ") : -1;
}

Ended run_shell(const std::string& command) {
  Ended ended;
  FILE* pipe = ::popen(("{ " + command + "; } 2>&1").c_str(), "r");
  if (!pipe) return ended;
  char buffer[4096];
  for (std::size_t count; (count = std::fread(buffer, 1, sizeof buffer, pipe)) > 0;)
    ended.text.append(buffer, count);
  const int status = ::pclose(pipe);
  if (WIFEXITED(status)) ended.code = WEXITSTATUS(status);
  return ended;
}

namespace {

Variables meeting_at(int port) {
  return {
      {"MASTER_ADDR", "127.0.0.1"}, {"PRUN_MASTER_PORT", std::to_string(port)}, {"PRUN_TOKEN", test_token}};
}

Variables with(Variables variables, const Variables& more) {
  variables.insert(variables.end(), more.begin(), more.end());
  return variables;
}

}  // namespace

Variables torchrun_variables(int rank, int world, int port) {
  return with(meeting_at(port), {{"RANK", std::to_string(rank)},
                                 {"WORLD_SIZE", std::to_string(world)},
                                 {"LOCAL_RANK", std::to_string(rank)},
                                 {"LOCAL_WORLD_SIZE", std::to_string(world)}});
}

Variables mpirun_variables(int rank, int world, int port) {
  return with(meeting_at(port), {{"OMPI_COMM_WORLD_RANK", std::to_string(rank)},
                                 {"OMPI_COMM_WORLD_SIZE", std::to_string(world)},
                                 {"OMPI_COMM_WORLD_LOCAL_RANK", std::to_string(rank)},
                                 {"OMPI_COMM_WORLD_LOCAL_SIZE", std::to_string(world)}});
}

Variables srun_variables(int rank, int world, int port) {
  return with(meeting_at(port), {{"SLURM_PROCID", std::to_string(rank)},
                                 {"SLURM_LOCALID", std::to_string(rank)},
                                 {"SLURM_STEP_ID", "0"},
                                 {"SLURM_STEP_NUM_TASKS", std::to_string(world)},
                                 {"SLURM_STEP_TASKS_PER_NODE", std::to_string(world)}});
}

// ------------------------------------------------------------------- what was saved

Tensors saved_tensors(const std::string& out) {
  const std::optional<fs::path> newest = read_latest(out);
  if (!newest) throw_error(ErrorCode::not_found, "no checkpoint in ", out);
  return saved_in(*newest);
}

double largest_difference(const Tensors& a, const Tensors& b) {
  double largest = a.size() == b.size() ? 0 : std::numeric_limits<double>::infinity();
  for (const auto& [name, bytes] : a) {
    const auto other = b.find(name);
    if (other == b.end() || other->second.size() != bytes.size() || bytes.size() % sizeof(double) != 0)
      return std::numeric_limits<double>::infinity();
    for (std::size_t at = 0; at < bytes.size(); at += sizeof(double)) {
      double x = 0, y = 0;
      std::memcpy(&x, bytes.data() + at, sizeof x);
      std::memcpy(&y, other->second.data() + at, sizeof y);
      largest = std::max(largest, std::abs(x - y));
    }
  }
  return largest;
}

// ------------------------------------------------------------------- words and figures

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

int count_of(const std::string& text, const std::string& part) {
  int count = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) ++count;
  return count;
}

void print_times(const std::string& what, std::vector<double> seconds) {
  if (seconds.empty()) return;
  std::sort(seconds.begin(), seconds.end());
  std::printf("%s: median %.3f s, worst %.3f s of %zu\n", what.c_str(), seconds[seconds.size() / 2],
              seconds.back(), seconds.size());
}

}  // namespace prun::test
