// The command of the observer `notify`: run once for each end, told what happened, waited for by nobody.
#include "plugins/observer/notify/notify_observer.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>

#include "tests/support/temp_folder.hpp"

namespace prun::notify {
namespace {

using Clock = std::chrono::steady_clock;
using test::TempFolder;

class Notify : public testing::Test {
 protected:
  // Writes what it was told, and shows it whole or not at all.
  std::string command() const {
    return "printf '%s|%s|%s|%s' \"$PRUN_EVENT\" \"$PRUN_STEP\" \"$PRUN_LOSS\" \"$PRUN_MESSAGE\" > '" +
           folder / "new" + "'; echo said; mv '" + folder / "new" + "' '" + folder / "told." + "'$PRUN_NAME";
  }
  void start(NotifyObserver& observer, const std::string& name) {
    RunInfo info;
    const std::string path = folder.path();
    info.name = name;
    info.folder = path;
    observer.start(info);
  }
  std::string told(const std::string& name = "run") { return text_of(folder / ("told." + name)); }
  // Once it is there.
  static std::string text_of(const std::string& file) {
    for (const auto begin = Clock::now(); Clock::now() - begin < std::chrono::minutes(4); ::usleep(2000))
      if (std::filesystem::exists(file)) return test::read_file(file);
    return "nothing within its time";
  }

  const TempFolder folder;
};

StepInfo step_of(std::int64_t step, double loss) {
  StepInfo info;
  info.step = step;
  info.loss = loss;
  return info;
}

TEST_F(Notify, AFinishedRun) {
  NotifyObserver observer(command());
  start(observer, "run");
  observer.step(step_of(12, 2.5));
  observer.event(EventKind::saved, "saved");
  observer.finish({});
  EXPECT_EQ(told(), "finished|12|2.5|");
  EXPECT_EQ(test::read_file(folder / "notify.log"), "said\n");
}

TEST_F(Notify, AMessageIsNeverACommand) {
  NotifyObserver observer(command());
  start(observer, "run");
  observer.event(EventKind::failed, "it's $(touch " + folder / "taken" + ") `x`\n\"; \\n %s");
  EXPECT_EQ(told(), "failed|0|0|it's $(touch " + folder / "taken" + ") `x` \"; \\n %s");
  EXPECT_FALSE(std::filesystem::exists(folder / "taken"));
}

TEST_F(Notify, AStoppedRunIsNotFinished) {
  NotifyObserver observer(command());
  start(observer, "run");
  observer.event(EventKind::stopped, "go on with");
  observer.finish({});
  EXPECT_EQ(told(), "stopped|0|0|go on with");
}

TEST_F(Notify, SilenceIsADeath) {
  {
    NotifyObserver observer(command());
    start(observer, "run");
    observer.step(step_of(12, 2.5));
  }
  EXPECT_EQ(told(), "died|||the process of the first rank ended without a word");
}

TEST_F(Notify, NobodyWaitsForTheCommandOrMindsThatItFails) {
  const std::string go = folder / "go", gone = folder / "gone";
  NotifyObserver slow("until [ -e '" + go + "' ] || ! [ -d '" + folder.path() +
                      "' ]; do sleep 0.05; done; : > '" + gone + "'");
  start(slow, "slow");
  slow.event(EventKind::failed, "x");
  slow.finish({});
  for (const char* line : {"exit 3", "no-such-command", "kill -9 $PPID"}) {
    NotifyObserver observer(line);
    start(observer, "run");
    for (int i = 0; i < 500; ++i) observer.event(EventKind::failed, std::string(1000, 'x'));
    observer.finish({});
  }
  EXPECT_FALSE(std::filesystem::exists(gone)) << "the command did not wait";
  folder.write("go", "");
  EXPECT_EQ(text_of(gone), "");
}

}  // namespace
}  // namespace prun::notify
