// The console: numbers as text, lines in their order, and a bar only where there is a terminal.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "plugins/observer/console/console_observer.hpp"
#include "tests/support/temp_folder.hpp"

namespace prun::console {
namespace {

// Standard output's stand-in: a file whose content can be looked at.
class Output {
 public:
  Output() : descriptor_(::open((folder_ / "out").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)) {}
  ~Output() { ::close(descriptor_); }
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;
  ScreenSettings plain() const { return {descriptor_, false, false, std::nullopt}; }
  ScreenSettings terminal(bool colour = false, int columns = 60) const {
    return {descriptor_, true, colour, columns};
  }
  std::string text() const { return test::read_file(folder_ / "out"); }

 private:
  test::TempFolder folder_;
  int descriptor_;
};

RunInfo run_of(std::int64_t steps, double peak_flops = 0) {
  RunInfo info;
  info.name = "demo", info.folder = "runs/demo", info.recipe = "demo.toml", info.device = "cpu, 2 threads";
  info.steps = steps;
  info.parameters = 124439808;
  info.tokens_per_step = 16384;
  info.flops_per_token = 8.6e8;
  info.peak_flops = peak_flops;
  info.plan_bytes = 3'221'225'472;
  return info;
}

StepInfo step_of(std::int64_t step, double seconds = 0.812) {
  StepInfo info;
  info.step = step;
  info.loss = 3.21414, info.grad_norm = 0.98, info.lr = 3e-4;
  info.targets = info.tokens = 16384;
  info.seconds = seconds;
  info.elapsed = static_cast<double>(step) * seconds;
  return info;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::size_t begin = 0;
  for (std::size_t end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1)
    lines.push_back(text.substr(begin, end - begin));
  EXPECT_EQ(begin, text.size()) << "the text does not end with a line end";
  return lines;
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST(ConsoleFormat, Numbers) {
  EXPECT_EQ(scaled(0), "0.00");
  EXPECT_EQ(scaled(9.99), "9.99");
  EXPECT_EQ(scaled(9.999), "10.0");
  EXPECT_EQ(scaled(812), "812");
  EXPECT_EQ(scaled(999.6), "1.00k");
  EXPECT_EQ(scaled(20177), "20.2k");
  EXPECT_EQ(scaled(1.534e6), "1.53M");
  EXPECT_EQ(scaled(124439808), "124M");
  EXPECT_EQ(scaled(5e15), "5000T");
  EXPECT_EQ(bytes_text(0), "0 B");
  EXPECT_EQ(bytes_text(1023), "1023 B");
  EXPECT_EQ(bytes_text(1024), "1.00 KiB");
  EXPECT_EQ(bytes_text(3'221'225'472), "3.00 GiB");
  EXPECT_EQ(gradient_norm(0.98), "0.98");
  EXPECT_EQ(gradient_norm(0), "0.00");
  EXPECT_EQ(gradient_norm(1.25e-5), "1.25e-05");
  EXPECT_EQ(gradient_norm(123456), "1.23e+05");
  EXPECT_EQ(gradient_norm(std::nan("")), "nan");
  EXPECT_EQ(fixed(std::numeric_limits<double>::infinity(), 4), "inf");
}

TEST(ConsoleFormat, Times) {
  EXPECT_EQ(duration(0.4), "0s");
  EXPECT_EQ(duration(59.4), "59s");
  EXPECT_EQ(duration(59.6), "1m00s");
  EXPECT_EQ(duration(724), "12m04s");
  EXPECT_EQ(duration(3600 + 7 * 60 + 59), "1h07m");
  EXPECT_EQ(duration(86400 * 2 + 5 * 3600), "2d05h");
  EXPECT_EQ(duration(-1), "?");
  EXPECT_EQ(duration(std::nan("")), "?");
  EXPECT_EQ(step_time(0.00421), "4.21 ms");
  EXPECT_EQ(step_time(0.812), "812 ms");
  EXPECT_EQ(step_time(12.34), "12.3 s");
  EXPECT_EQ(step_time(123.4), "123 s");
}

TEST(ConsoleFormat, TextOfOthersCannotMoveTheCursor) {
  EXPECT_EQ(printable("a\033[2Jb\r\tc\x7f\u202e", "  "), "a\\x1b[2Jb\\r\tc\\x7f\\u202e");
  EXPECT_EQ(printable("one\ntwo\n", "  "), "one\n  two");
  EXPECT_EQ(first_line("one\ntwo"), "one");
  EXPECT_EQ(printable("größer", ""), "größer");
}

TEST(ConsoleFormat, TheBarFitsItsColumns) {
  EXPECT_EQ(progress_bar(0.5, "9s", 40).size(), 39u);
  EXPECT_EQ(progress_bar(0.5, "9s", 40), "[===========>           ]  50% | eta 9s");
  EXPECT_EQ(progress_bar(1, "0s", 30), "[=============] 100% | eta 0s");
  for (int columns = 0; columns < 200; ++columns)
    for (const double share : {-1.0, 0.0, 0.3, 1.0, 2.0, std::nan("")}) {
      const std::string bar = progress_bar(share, "12m04s", columns);
      EXPECT_TRUE(bar.empty() || bar.size() < static_cast<std::size_t>(columns)) << columns;
    }
  EXPECT_EQ(progress_bar(0.5, "9s", 20), "");
}

TEST(ConsoleStepTimes, MediansForgetOutliersAndThePast) {
  StepTimes times;
  EXPECT_TRUE(times.empty());
  times.add(0), times.add(-1), times.add(std::nan(""));
  EXPECT_TRUE(times.empty());
  times.add(100);
  EXPECT_DOUBLE_EQ(times.recent_median(), 100);
  times.add(1);
  EXPECT_DOUBLE_EQ(times.median(), 50.5);
  for (int i = 0; i < 3; ++i) times.add(1);
  EXPECT_DOUBLE_EQ(times.recent_median(), 1);
  for (int i = 0; i < 101; ++i) times.add(2);
  times.add(1000);
  EXPECT_DOUBLE_EQ(times.recent_median(), 2);
}

TEST(ConsoleLines, TheHeaderTellsTheRun) {
  const Output output;
  ConsoleObserver observer(1, output.plain());
  observer.start(run_of(1000));
  const std::vector<std::string> expected{"run       demo (runs/demo)",
                                          "recipe    demo.toml",
                                          "device    cpu, 2 threads",
                                          "model     124M parameters (124439808)",
                                          "steps     1 to 1000, 16384 tokens each",
                                          "plan      3.00 GiB (3221225472 bytes)"};
  EXPECT_EQ(lines_of(output.text()), expected);
}

TEST(ConsoleLines, AStep) {
  const Output output;
  ConsoleObserver observer(1, output.plain());
  observer.start(run_of(1000));
  observer.step(step_of(120));
  EXPECT_EQ(lines_of(output.text()).back(),
            "step 120/1000 | loss 3.2141 | grad 0.98 | lr 3.00e-04 | 20.2k tok/s | 812 ms | eta 11m55s");
}

TEST(ConsoleLines, AnEvaluationWithAStateAndSets) {
  const Output output;
  ConsoleObserver observer(1, output.plain());
  observer.start(run_of(1000));
  EvaluationInfo info;
  info.step = 5, info.loss = 2.5, info.targets = 8, info.seconds = 0.5;
  const std::vector<EvaluatedLoss> sets = {{"average", 1.5, 8}, {"validation.0", 2.25, 7}};
  info.sets = {sets.data(), sets.size()};
  observer.evaluation(info);
  const std::vector<std::string> lines = lines_of(output.text());
  ASSERT_GE(lines.size(), 3u);
  EXPECT_EQ(lines[lines.size() - 3], "step 5/1000 | eval loss 2.5000 | 8 targets | 500 ms");
  EXPECT_EQ(lines[lines.size() - 2], "  average | loss 1.5000 | 8 targets");
  EXPECT_EQ(lines.back(), "  validation.0 | loss 2.2500 | 7 targets");
}

TEST(ConsoleLines, ExposedCommunicationAsMeasuredLast) {
  const Output output;
  ConsoleObserver observer(1, output.plain());
  observer.start(run_of(1000));
  observer.step(step_of(9));
  EXPECT_FALSE(has(output.text(), "comm"));
  StepInfo measured = step_of(10);
  measured.exposed_seconds = 0.0253;
  observer.step(measured);
  EXPECT_TRUE(has(lines_of(output.text()).back(), " | 812 ms | comm 3.1% | eta "));
  observer.step(step_of(11));
  EXPECT_TRUE(has(lines_of(output.text()).back(), " | 812 ms | comm 3.1% | eta "));
}

TEST(ConsoleLines, WhatDevicesDrawWhereItIsKnown) {
  const Output output;
  ConsoleObserver observer(1, output.plain());
  observer.start(run_of(1000));
  StepInfo step = step_of(10);
  step.watts = 690.6, step.joules = 690.6 * 0.8;
  observer.step(step);
  const double millijoules = 1e3 * step.joules / static_cast<double>(step.tokens);
  EXPECT_TRUE(has(lines_of(output.text()).back(), " | 691 W " + fixed(millijoules, 2) + " mJ/tok | eta "))
      << output.text();
}

TEST(ConsoleLines, MfuOnlyWithAPeak) {
  const Output output;
  ConsoleObserver observer(1, output.plain());
  observer.start(run_of(1000, 4.2e13));
  observer.step(step_of(120));
  const std::string text = output.text();
  EXPECT_TRUE(
      has(text, "mfu       6 N + 6 layers heads head_dim seq per token, causal; of a peak of 42.0 TFLOP/s"));
  EXPECT_TRUE(has(text, "20.2k tok/s | mfu 41.3% | 812 ms"));
}

std::vector<std::int64_t> shown_steps(const std::string& text) {
  std::vector<std::int64_t> steps;
  for (const std::string& line : lines_of(text))
    if (line.starts_with("step ")) steps.push_back(std::stoll(line.substr(5)));
  return steps;
}

TEST(ConsoleLines, EveryNthTheFirstTheLastAndTheSkipped) {
  const Output output;
  ConsoleObserver observer(5, output.plain());
  observer.start(run_of(23));
  for (std::int64_t i = 3; i <= 23; ++i) {
    StepInfo step = step_of(i);
    step.kept = i != 12;
    observer.step(step);
  }
  observer.finish({});
  EXPECT_EQ(shown_steps(output.text()), (std::vector<std::int64_t>{3, 5, 10, 12, 15, 20, 23}));
  EXPECT_TRUE(has(output.text(), " | update skipped\nstep 15/23"));
}

TEST(ConsoleLines, AStoppedRunShowsItsLastStep) {
  const Output output;
  ConsoleObserver observer(100, output.plain());
  observer.start(run_of(1000));
  for (std::int64_t i = 1; i <= 42; ++i) observer.step(step_of(i));
  observer.event(EventKind::stopped, "interrupted");
  observer.finish({});
  EXPECT_EQ(shown_steps(output.text()), (std::vector<std::int64_t>{1, 42}));
  EXPECT_EQ(lines_of(output.text()).back(),
            "stopped: 42 steps in 34s | loss 3.2141 to 3.2141 | 20.2k tok/s median");
}

TEST(ConsoleLines, EventsAndTheSummary) {
  const Output output;
  ConsoleObserver observer(1, output.plain());
  observer.start(run_of(2));
  StepInfo first = step_of(1, 50);  // a slow first step moves no median of three
  first.loss = 10.5;
  observer.step(first);
  observer.event(EventKind::warning, "disk is\nnearly full\n");
  observer.event(EventKind::saved, "checkpoint of step 2");
  observer.event(EventKind::note, "a\033b");
  StepInfo last = step_of(2);
  last.elapsed = 50.812;
  observer.step(last);
  observer.finish({});
  const std::vector<std::string> lines = lines_of(output.text());
  ASSERT_EQ(lines.size(), 13u);
  EXPECT_EQ(lines[7], "warning: disk is");
  EXPECT_EQ(lines[8], "  nearly full");
  EXPECT_EQ(lines[9], "saved: checkpoint of step 2");
  EXPECT_EQ(lines[10], "note: a\\x1bb");
  EXPECT_EQ(lines[12], "done: 2 steps in 51s | loss 10.5000 to 3.2141 | 645 tok/s median");
  EXPECT_FALSE(has(output.text(), "\033"));
}

TEST(ConsoleLines, MemoryOfTheRankThatHadMost) {
  const std::vector<RankMemory> ranks = {{2 << 20, 1 << 20, 5 << 20}, {4 << 20, 3 << 20, 8 << 20}};
  const auto last_lines = [](Array<RankMemory> memory) {
    const Output output;
    ConsoleObserver observer(1, output.plain());
    observer.start(run_of(1));
    observer.step(step_of(1));
    observer.finish({memory});
    const std::vector<std::string> lines = lines_of(output.text());
    return lines[lines.size() - 2] + "\n" + lines.back().substr(0, 5);
  };
  EXPECT_EQ(last_lines({ranks.data(), 2}),
            "memory: peak 8.00 MiB of rank 1, planned 4.00 MiB and 3.00 MiB for the process\ndone:");
  EXPECT_EQ(last_lines({ranks.data(), 1}),
            "memory: peak 5.00 MiB, planned 2.00 MiB and 1.00 MiB for the process\ndone:");
  const RankMemory unknown{2 << 20, 1 << 20, 0};
  EXPECT_EQ(last_lines({&unknown, 1}).substr(0, 4), "step");
}

TEST(ConsoleLines, ARunWithoutSteps) {
  const Output output;
  ConsoleObserver observer(1, output.plain());
  observer.start(run_of(10));
  observer.event(EventKind::failed, "no data");
  observer.finish({});
  EXPECT_EQ(lines_of(output.text()).back(), "failed: no step ran");
}

// What a terminal shows in the end: a carriage return and "erase" take back what has no line end yet.
std::string shown(const std::string& text) {
  std::string screen, line;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text.compare(i, 4, "\r\033[K") == 0)
      line.clear(), i += 3;
    else if (text[i] == '\n')
      screen += line + "\n", line.clear();
    else
      line += text[i];
  }
  return screen + line;
}

TEST(ConsoleTerminal, TheBarIsBelowTheLastLineAndGoneAtTheEnd) {
  const Output output, file;
  {
    ConsoleObserver observer(2, output.terminal()), plain(2, file.plain());
    for (ConsoleObserver* each : {&observer, &plain}) {
      each->start(run_of(10));
      for (std::int64_t i = 1; i <= 5; ++i) each->step(step_of(i, 1));
    }
    EXPECT_EQ(shown(output.text()),
              file.text() + "[=====================>                     ]  50% | eta 5s");
    for (ConsoleObserver* each : {&observer, &plain}) each->finish({});
  }
  EXPECT_EQ(shown(output.text()), file.text());
}

TEST(ConsoleTerminal, ABarIsLeftByNobody) {
  const Output output;
  {
    ConsoleObserver observer(1, output.terminal());
    observer.start(run_of(10));
    observer.step(step_of(1));
    EXPECT_FALSE(shown(output.text()).ends_with("\n"));
  }
  EXPECT_TRUE(shown(output.text()).ends_with("\n"));
}

TEST(ConsoleTerminal, FastStepsDoNotRedrawEachTime) {
  const Output output;
  ConsoleObserver observer(1000, output.terminal());
  observer.start(run_of(1000));
  for (std::int64_t i = 1; i < 1000; ++i) observer.step(step_of(i, 0.001));
  const std::string text = output.text();
  EXPECT_GE(std::count(text.begin(), text.end(), '\r'), 8);
  EXPECT_LE(std::count(text.begin(), text.end(), '\r'), 11);
}

TEST(ConsoleTerminal, ColourOnlyWhenAsked) {
  const Output painted, bare;
  for (const auto& settings : {painted.terminal(true), bare.terminal(false)}) {
    ConsoleObserver observer(1, settings);
    observer.start(run_of(10));
    observer.event(EventKind::failed, "x");
  }
  EXPECT_TRUE(has(painted.text(), "\033[31mfailed: x\033[0m\n"));
  EXPECT_FALSE(has(bare.text(), "\033[31m"));
}

class Environment : public testing::Test {
 protected:
  void SetUp() override {
    master_ = ::posix_openpt(O_RDWR | O_NOCTTY);
    if (master_ < 0 || ::grantpt(master_) != 0 || ::unlockpt(master_) != 0)
      GTEST_SKIP() << "no pseudo terminal";
    char name[100];
    ASSERT_EQ(::ptsname_r(master_, name, sizeof name), 0);
    terminal_ = ::open(name, O_RDWR | O_NOCTTY);
    ASSERT_GE(terminal_, 0);
    for (const char* variable : {"COLUMNS", "NO_COLOR"}) ::unsetenv(variable);
    ::setenv("TERM", "xterm", 1);
  }
  void TearDown() override {
    for (const int descriptor : {terminal_, master_})
      if (descriptor >= 0) ::close(descriptor);
    for (const char* variable : {"COLUMNS", "NO_COLOR"}) ::unsetenv(variable);
  }
  int master_ = -1, terminal_ = -1;
};

TEST_F(Environment, ATerminalIsRecognised) {
  EXPECT_TRUE(screen_settings(terminal_).terminal);
  EXPECT_TRUE(screen_settings(terminal_).colour);
  ::setenv("TERM", "dumb", 1);
  EXPECT_FALSE(screen_settings(terminal_).terminal);
  const test::TempFolder folder;
  const int file = ::open((folder / "x").c_str(), O_RDWR | O_CREAT, 0600);
  EXPECT_FALSE(screen_settings(file).terminal);
  ::close(file);
}

TEST_F(Environment, NoColorIsRespectedUnlessEmpty) {
  ::setenv("NO_COLOR", "", 1);
  EXPECT_TRUE(screen_settings(terminal_).colour);
  ::setenv("NO_COLOR", "1", 1);
  EXPECT_FALSE(screen_settings(terminal_).colour);
  EXPECT_TRUE(screen_settings(terminal_).terminal);
}

TEST_F(Environment, ColumnsBeforeTheTerminalsWidth) {
  winsize size{};
  size.ws_col = 123;
  ASSERT_EQ(::ioctl(terminal_, TIOCSWINSZ, &size), 0);
  EXPECT_EQ(Screen(screen_settings(terminal_)).columns(), 123);
  ::setenv("COLUMNS", "44", 1);
  EXPECT_EQ(Screen(screen_settings(terminal_)).columns(), 44);
  for (const char* odd : {"0", "-5", "many", "44x", ""}) {
    ::setenv("COLUMNS", odd, 1);
    EXPECT_EQ(Screen(screen_settings(terminal_)).columns(), 123) << odd;
  }
}

TEST(ConsoleErrors, AFullDeviceIsAStorageError) {
  const int full = ::open("/dev/full", O_WRONLY | O_CLOEXEC);
  if (full < 0) GTEST_SKIP() << "no /dev/full here";
  ConsoleObserver observer(1, {full, false, false, std::nullopt});
  try {
    observer.start(run_of(1));
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::storage);
    EXPECT_TRUE(has(error.what(), "standard output: cannot be written"));
  }
  ::close(full);
}

}  // namespace
}  // namespace prun::console
