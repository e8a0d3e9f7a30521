// Runs of the real binary with several ranks, for tests that disturb them: starting, finding the processes,
// what was saved.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <map>
#include <optional>
#include <ostream>
#include <set>
#include <string>
#include <vector>

#include "launch/leftovers.hpp"
#include "launch/process.hpp"
#include "support/free_port.hpp"
#include "support/saved.hpp"

namespace prun::test {

// The slow versions, with many trials.
bool is_long();
// A number to draw from; PRUN_TEST_SEED repeats a run.
unsigned test_seed();

// A file with the tiny recipe, data-parallel over that many ranks (4 sequences each). It prints its steps and
// saves into out_folder(name).
std::string recipe_file(const std::string& name, int ranks, const std::vector<std::string>& sets = {});
// The same in another layout, which `text` describes.
std::string layout_file(const std::string& name, const std::string& text,
                        const std::vector<std::string>& sets = {});
std::string out_folder(const std::string& name);

// Devices that runs are disturbed on: what a recipe says for it.
struct RunDevice {
  const char* name;
  std::vector<std::string> sets;
};
inline std::ostream& operator<<(std::ostream& out, const RunDevice& device) { return out << device.name; }
std::vector<RunDevice> run_devices();
// The recipe, and where the tests' plugins are.
std::vector<std::string> with_test_plugins(const std::string& recipe);

// Seconds until all must be gone, or a rank has been named: less than one on a machine that has nothing else
// to do.
inline constexpr double latest = 90;

// A prun process and whatever it starts, which is recognized by a variable of its environment.
class PrunRun {
 public:
  explicit PrunRun(const std::vector<std::string>& words, Variables variables = {});

  Process& process() { return process_; }
  const Process& process() const { return process_; }
  const std::string& output() { return process_.output(); }
  // All processes that live, the launcher among them.
  std::set<pid_t> alive() const;
  // Waits for a rank that prun starts, or for whoever has a variable: "RANK=3". -1: there is none.
  pid_t rank(int number) const { return process_with("PRUN_RANK=" + std::to_string(number)); }
  pid_t process_with(const std::string& setting) const;
  // Until all of them are gone: the seconds it took. Nothing when some live on after the limit.
  std::optional<double> seconds_until_gone(double limit = latest) const;
  // Until so many more steps have been printed than now.
  bool goes_on(int steps);
  // Stops a run without an end where it is: the step that it saved last, or -1 when it did not end as it
  // should.
  int stop_and_save(int signal = SIGTERM);

 private:
  std::string tag_;
  Process process_;
};

// A line for the shell, from start to end, with both of its outputs.
struct Ended {
  int code = -1;
  std::string text;
};
Ended run_shell(const std::string& command);

// What torchrun, mpirun and srun give to a rank of a run on one host, and a token.
Variables torchrun_variables(int rank, int world, int port);
Variables mpirun_variables(int rank, int world, int port);
Variables srun_variables(int rank, int world, int port);
inline constexpr const char* test_token = "a token of this test that is long enough";

// Every tensor of the newest checkpoint in the folder of a run; what is damaged is an error.
Tensors saved_tensors(const std::string& out);
// How far two checkpoints in fp64 differ at most; infinite when they do not hold the same tensors.
double largest_difference(const Tensors& a, const Tensors& b);

bool contains(const std::string& text, const std::string& part);
int count_of(const std::string& text, const std::string& part);

// "killed rank to all gone: median 0.040 s, worst 0.055 s of 50"
void print_times(const std::string& what, std::vector<double> seconds);

}  // namespace prun::test
