// Measures what it costs the host to feed an asynchronous queue: the core's share of a call, on a device and
// with a comm plugin that do nothing themselves.
//
//   submission_cost RECIPE [KEY=VALUE]...
//
// The recipe's device must be asynchronous, since plans depend on that (cuda needs no GPU here). It is built
// on demand: cmake --build build --target submission_cost.
#include <ctime>

#include <cstdio>

#include "execute/executor.hpp"
#include "support/assembly_fixture.hpp"
#include "support/eager.hpp"

namespace {

using namespace prun;

double seconds_of(clockid_t clock) {
  timespec now{};
  ::clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Returns the CPU time of all other threads of the process: there is only the submitter.
double others_seconds() {
  const double own = seconds_of(CLOCK_THREAD_CPUTIME_ID);
  return seconds_of(CLOCK_PROCESS_CPUTIME_ID) - own;
}

constexpr int steps = 1000;

void measure(const Recipe& recipe) {
  const Assembly assembly(recipe, test::plugins());
  if (!assembly.device_info().asynchronous)
    throw_error(ErrorCode::bad_input, "device '", assembly.device_info().name.view(), "' blocks");
  const Plan& plan = assembly.plan();
  const auto device = test::eager_device();
  const auto comm = test::eager_comm();
  Executor executor(assembly.program(), plan, {device.get()}, {}, test::comms_of(plan, *comm));
  const auto run = [&](int count) {
    executor.start_step();
    for (int step = 1; step < count; ++step) {
      executor.start_step();
      executor.finish_step();
    }
    executor.finish_step();
  };
  run(10);
  const double before = others_seconds();
  run(steps);
  const double seconds = (others_seconds() - before) / steps;
  std::size_t waits = 0;
  for (const Call& call : plan.calls) waits += call.waits.size();
  std::printf("%zu queues, %zu calls and %zu waits a step: %.1f us a step, %.0f ns a call\n",
              plan.queues.size(), plan.calls.size(), waits, seconds * 1e6,
              seconds * 1e9 / static_cast<double>(plan.calls.size()));
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 2) return std::fprintf(stderr, "usage: submission_cost RECIPE [KEY=VALUE]...\n"), 2;
  try {
    const std::vector<std::string> sets(arguments + 2, arguments + count);
    measure(Recipe::load(arguments[1], sets, test::plugins().catalog()));
  } catch (const Error& error) {
    std::fprintf(stderr, "submission_cost: %s\n", error.what());
    return exit_code(error.code());
  }
}
