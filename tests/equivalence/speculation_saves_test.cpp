// Saves beside steps whose updates begin before the norm is known: each checkpoint is that of updates that
// wait, runs go on from each to the same bits, and so does a run that is killed between an update that is
// settled and the save.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>

#include "base/durable_file.hpp"
#include "clipped_runs.hpp"
#include "support/saved.hpp"
#include "support/temp_folder.hpp"

namespace prun::test::speculation_saves_test {
namespace {

constexpr int steps = 8;

class SpeculationAndSaves : public testing::TestWithParam<Target> {
 protected:
  Recipe recipe(const std::string& out, bool speculates, const std::vector<std::string>& more = {}) const {
    const std::vector<std::string> sets = {
        "model.layers=3",         "optimizer.lr=0.01",      "batch.order=breadth_first",
        "optimizer.clip=0.95",    "precision.compute=bf16", "precision.master=split",
        "precision.moments=bf16", "run.save_every=1",       "run.out=" + (folder_ / out)};
    return tiny_recipe(with(with(GetParam().sets, sets), more), everything_on_host(speculates));
  }
  std::string checkpoint(const std::string& out, int step) const {
    return folder_ / (out + "/step-0000000" + std::to_string(step));
  }

  const TempFolder folder_;
};

// Trains to the last step with a save beside each step; returns the norms and, last, all parameters.
std::vector<double> train_and_save(const Recipe& recipe, const Probes& probes = {}) {
  std::vector<double> results;
  const auto body = [&](Trainer& trainer) {
    while (trainer.progress().step < steps) {
      results.push_back(trainer.step().grad_norm);
      trainer.begin_save();
    }
    trainer.finish_save();
    const std::vector<double> parameters = parameters_of(trainer);
    results.insert(results.end(), parameters.begin(), parameters.end());
  };
  run_local_ranks(recipe, plugins().places(), body, probes);
  return results;
}

// Returns what is the same however many steps of a run are left.
std::vector<double> end_of(const std::vector<double>& results, std::size_t count) {
  return {results.end() - static_cast<std::ptrdiff_t>(count), results.end()};
}

TEST_P(SpeculationAndSaves, AreThoseOfUpdatesThatWaitAndRunsGoOnFromEach) {
  const std::vector<double> waiting = train_and_save(recipe("waiting", false)),
                            speculating = train_and_save(recipe("speculating", true));
  EXPECT_EQ(speculating, waiting);
  EXPECT_GT(Assembly(recipe("plan", true), plugins()).plan().speculated(), 0);
  const auto beyond =
      std::count_if(waiting.begin(), waiting.begin() + steps, [](double norm) { return norm > 0.95; });
  EXPECT_GT(beyond, 0);
  EXPECT_LT(beyond, steps);
  for (int step = 1; step <= steps; ++step)
    EXPECT_TRUE(saved_in(checkpoint("speculating", step)) == saved_in(checkpoint("waiting", step))) << step;
  for (int step = 1; step < steps; ++step) {
    const std::vector<double> resumed = train_and_save(
        recipe("resumed-" + std::to_string(step), true, {"run.resume=" + checkpoint("speculating", step)}));
    EXPECT_EQ(resumed, end_of(waiting, waiting.size() - static_cast<std::size_t>(step))) << step;
  }
}

// Ends the process as it is, at the end of the n-th of a step's calls that settle updates.
class Kill final : public Probe {
 public:
  Kill(const Plan& plan, std::int64_t step, int call) : plan_(plan), step_(step), left_(call) {}
  bool live() const noexcept override { return true; }
  void begin_call(std::int32_t, const Call&, std::int64_t, double) noexcept override {}
  void end_call(std::int32_t, const Call& call, std::int64_t step, double) noexcept override {
    if (step == step_ && plan_.functions[call.function].kind == FunctionKind::settle && --left_ == 0)
      ::kill(::getpid(), SIGKILL);
  }

 private:
  const Plan& plan_;
  const std::int64_t step_;
  std::atomic<int> left_;
};

// Returns whether another process that trains ends by SIGKILL.
bool is_killed(const Recipe& recipe, std::int64_t step, int call) {
  const pid_t child = ::fork();
  if (child == 0) {
    std::unique_ptr<Kill> kill;
    train_and_save(recipe, [&](const Assembly& assembly, Communicators*) {
      kill = std::make_unique<Kill>(assembly.plan(), step, call);
      return std::vector<Probe*>{kill.get()};
    });
    ::_exit(0);
  }
  int status = 0;
  return ::waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
}

TEST_P(SpeculationAndSaves, AfterAKillBetweenTheTwoARunGoesOnToTheSameBits) {
  const std::vector<double> whole = train_and_save(recipe("whole", false));
  const int last = Assembly(recipe("plan", true), plugins()).plan().speculated();
  const int steps_apart = std::getenv("PRUN_LONG") ? 1 : 3;
  for (std::int64_t step = 2; step < steps; step += steps_apart)
    for (const int call : {1, last}) {
      const std::string name = "killed-" + std::to_string(step) + "-" + std::to_string(call);
      ASSERT_TRUE(is_killed(recipe(name, true), step, call)) << name;
      const auto latest = read_latest(folder_ / name);
      ASSERT_TRUE(latest) << name;
      const std::vector<double> resumed =
          train_and_save(recipe(name, true, {"run.resume=" + latest->string()}));
      EXPECT_EQ(resumed, end_of(whole, resumed.size())) << name << " from " << *latest;
      EXPECT_GE(resumed.size(), whole.size() - static_cast<std::size_t>(step)) << name;
    }
}

INSTANTIATE_TEST_SUITE_P(Targets, SpeculationAndSaves, testing::ValuesIn(targets()),
                         [](const auto& tested) { return std::string(tested.param.name); });

}  // namespace
}  // namespace prun::test::speculation_saves_test
