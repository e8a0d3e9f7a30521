// The JSON lines: valid, complete, exact, appended, and loud when they cannot be written.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <functional>
#include <limits>
#include <random>

#include "plugins/observer/jsonl/jsonl_observer.hpp"
#include "tests/support/fake_options.hpp"
#include "tests/support/temp_folder.hpp"

namespace prun::jsonl {
namespace {

using test::read_file;
using test::TempFolder;

std::vector<std::string> lines_of(const std::string& path) {
  const std::string text = read_file(path);
  std::vector<std::string> lines;
  std::size_t begin = 0;
  for (std::size_t end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1)
    lines.push_back(text.substr(begin, end - begin));
  EXPECT_EQ(begin, text.size()) << "the log does not end with a line end";
  return lines;
}

// Without the one field that no test can know.
std::string timeless(const std::string& line) {
  const std::size_t begin = line.find(",\"time\":");
  EXPECT_NE(begin, std::string::npos) << line;
  const std::size_t end = line.find_first_of(",}", begin + 1);
  return line.substr(0, begin) + line.substr(end);
}

JsonlObserver observer_of(const std::string& path) {
  test::FakeOptions options{{"path", path}, {"flush_seconds", 5.0}};
  const Options read = options.options();
  return JsonlObserver(read);
}

RunInfo run_of(const std::string& folder, std::int64_t first_step = 1) {
  RunInfo info;
  info.name = "demo", info.folder = folder, info.recipe = "a \"b\".toml", info.device = "cpu";
  info.steps = 10, info.first_step = first_step;
  info.parameters = 124439808, info.tokens_per_step = 512;
  info.flops_per_token = 8.5e8, info.peak_flops = 0, info.plan_bytes = 4096;
  return info;
}

StepInfo step_of(std::int64_t step) {
  StepInfo info;
  info.step = step;
  info.loss = 3.25, info.grad_norm = 0.1, info.lr = 3e-4;
  info.targets = info.tokens = 512;
  info.seconds = 0.5, info.elapsed = 1.5;
  return info;
}

TEST(JsonlObserver, AnEvaluationSaysWhatWasAskedForAndNoMore) {
  const test::TempFolder folder;
  JsonlObserver observer = observer_of(folder / "log");
  observer.start(run_of(folder.path()));
  EvaluationInfo info;
  info.step = 5, info.loss = 2.5, info.targets = 8;
  observer.evaluation(info);
  const std::vector<EvaluatedLoss> sets = {{"data", 2.25, 7}, {"data.blend.0", 4.5, 1}};
  info.sets = {sets.data(), sets.size()};
  observer.evaluation(info);
  const std::vector<std::string> lines = lines_of(folder / "log");
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(timeless(lines[1]), R"({"type":"evaluation","step":5,"eval_loss":2.5,"targets":8,"seconds":0})");
  EXPECT_EQ(timeless(lines[2]),
            R"({"type":"evaluation","step":5,"eval_loss":2.5,"targets":8,"seconds":0,)"
            R"("sets":{"data":{"loss":2.25,"targets":7},"data.blend.0":{"loss":4.5,"targets":1}}})");
}

TEST(JsonlObserver, EveryRecord) {
  const TempFolder folder;
  const std::string path = folder / "new/folders/run.jsonl";
  JsonlObserver observer = observer_of(path);
  observer.start(run_of("elsewhere"));
  StepInfo diverged = step_of(2);
  diverged.loss = std::nan(""), diverged.kept = false;
  observer.step(step_of(1));
  observer.step(diverged);
  observer.event(EventKind::saved, "step 2\nsaved");
  const std::vector<RankMemory> memory = {{4096, 1024, 5000}, {2048, 1024, 0}};
  observer.finish({{memory.data(), memory.size()}});
  const std::vector<std::string> lines = lines_of(path);
  ASSERT_EQ(lines.size(), 5u);
  EXPECT_EQ(timeless(lines[0]),
            R"({"type":"start","name":"demo","folder":"elsewhere","recipe":"a \"b\".toml","device":"cpu",)"
            R"("steps":10,"first_step":1,"parameters":124439808,"tokens_per_step":512,)"
            R"("flops_per_token":8.5e+08,"peak_flops":0,"plan_bytes":4096})");
  EXPECT_EQ(timeless(lines[1]),
            R"({"type":"step","step":1,"loss":3.25,"grad_norm":0.1,"lr":3e-04,"kept":true,)"
            R"("targets":512,"tokens":512,"seconds":0.5,"elapsed":1.5,"steps":10,"tokens_per_second":1024})");
  EXPECT_EQ(timeless(lines[2]),
            R"({"type":"step","step":2,"loss":"nan","grad_norm":0.1,"lr":3e-04,"kept":false,)"
            R"("targets":512,"tokens":512,"seconds":0.5,"elapsed":1.5,"steps":10,"tokens_per_second":1024})");
  EXPECT_EQ(timeless(lines[3]), R"({"type":"event","kind":"saved","message":"step 2\nsaved"})");
  EXPECT_EQ(timeless(lines[4]),
            R"({"type":"finish","memory":[{"plan_bytes":4096,"process_bytes":1024,"peak_bytes":5000},)"
            R"({"plan_bytes":2048,"process_bytes":1024,"peak_bytes":0}]})");
}

TEST(JsonlObserver, LossesBySetAndRoleWhereTheyAreTold) {
  const TempFolder folder;
  const std::string path = folder / "run.jsonl";
  JsonlObserver observer = observer_of(path);
  observer.start(run_of("elsewhere"));
  const std::vector<EvaluatedLoss> losses = {{"data", 2.25, 7}, {"role.user", 4.5, 1}};
  StepInfo step = step_of(1);
  step.losses = {losses.data(), losses.size()};
  observer.step(step);
  observer.finish({});
  EXPECT_NE(lines_of(path)[1].find(
                R"("losses":{"data":{"loss":2.25,"targets":7},"role.user":{"loss":4.5,"targets":1}})"),
            std::string::npos)
      << lines_of(path)[1];
}

TEST(JsonlObserver, ExposedCommunicationWhereItIsMeasured) {
  const TempFolder folder;
  const std::string path = folder / "run.jsonl";
  JsonlObserver observer = observer_of(path);
  observer.start(run_of("elsewhere"));
  StepInfo measured = step_of(10);
  measured.exposed_seconds = 0.125;
  observer.step(measured);
  EXPECT_EQ(
      timeless(lines_of(path).back()),
      R"({"type":"step","step":10,"loss":3.25,"grad_norm":0.1,"lr":3e-04,"kept":true,)"
      R"("targets":512,"tokens":512,"seconds":0.5,"elapsed":1.5,"steps":10,"tokens_per_second":1024,"exposed_seconds":0.125,)"
      R"("exposed_share":0.25})");
}

TEST(JsonlObserver, WhatDevicesDrawWhereItIsKnown) {
  const TempFolder folder;
  const std::string path = folder / "run.jsonl";
  JsonlObserver observer = observer_of(path);
  observer.start(run_of("elsewhere"));
  StepInfo step = step_of(10);
  step.watts = 690.5, step.clock_mhz = 1545, step.joules = 690.5;
  observer.step(step);
  EXPECT_NE(lines_of(path).back().find(R"("watts":690.5,"clock_mhz":1545,"joules_per_token":1.3486328125)"),
            std::string::npos)
      << lines_of(path).back();
}

TEST(JsonlObserver, WhatTrainingStoodStillForWhereItDid) {
  const TempFolder folder;
  JsonlObserver observer = observer_of(folder / "log");
  const std::string name = "elsewhere";
  RunInfo run = run_of(name);
  run.peak_flops = 1.7408e12;
  observer.start(run);
  StepInfo step = step_of(3);
  step.save_seconds = 0.25, step.compare_seconds = 0.125;
  observer.step(step);
  EXPECT_EQ(
      timeless(lines_of(folder / "log").back()),
      R"({"type":"step","step":3,"loss":3.25,"grad_norm":0.1,"lr":3e-04,"kept":true,)"
      R"("targets":512,"tokens":512,"seconds":0.5,"elapsed":1.5,"steps":10,"tokens_per_second":1024,"mfu":0.5,)"
      R"("save_seconds":0.25,"compare_seconds":0.125})");
  FinishInfo finish;
  finish.save_seconds = 2;
  observer.finish(finish);
  EXPECT_EQ(timeless(lines_of(folder / "log").back()), R"({"type":"finish","memory":[],"save_seconds":2})");
}

TEST(JsonlObserver, EveryKindOfEvent) {
  const TempFolder folder;
  JsonlObserver observer = observer_of(folder / "log");
  observer.start(run_of(""));
  for (const EventKind kind :
       {EventKind::note, EventKind::warning, EventKind::saved, EventKind::stopped, EventKind::failed})
    observer.event(kind, "");
  const std::vector<std::string> lines = lines_of(folder / "log");
  ASSERT_EQ(lines.size(), 6u);
  const char* kinds[] = {"note", "warning", "saved", "stopped", "failed"};
  for (std::size_t i = 0; i < 5; ++i)
    EXPECT_EQ(timeless(lines[i + 1]),
              std::string(R"({"type":"event","kind":")") + kinds[i] + R"(","message":""})");
}

TEST(JsonlObserver, TheRunsFolderByDefault) {
  const TempFolder folder;
  JsonlObserver observer = observer_of("");
  observer.start(run_of(folder.path()));
  EXPECT_EQ(lines_of(folder / "log.jsonl").size(), 1u);
}

TEST(JsonlObserver, ASaveSaysWhichStepItIsOf) {
  const TempFolder folder;
  JsonlObserver observer = observer_of(folder / "log");
  observer.start(run_of(""));
  observer.step(step_of(5));
  observer.event(EventKind::saved, "runs/demo/step-00000004");
  observer.event(EventKind::note, "runs/demo/step-00000004");
  observer.event(EventKind::saved, "runs/demo/step-best");
  const std::vector<std::string> lines = lines_of(folder / "log");
  ASSERT_EQ(lines.size(), 5u);
  EXPECT_EQ(timeless(lines[2]),
            R"({"type":"event","kind":"saved","message":"runs/demo/step-00000004","step":4})");
  EXPECT_EQ(lines[3].find("\"step\""), std::string::npos) << lines[3];
  EXPECT_EQ(lines[4].find("\"step\""), std::string::npos) << lines[4];
}

TEST(JsonlObserver, ALinkInTheRunsFolderIsNotFollowedAndOneThatIsNamedIs) {
  const TempFolder folder;
  const std::string outside = folder.write("outside", "mine\n"), run = folder / "run";
  std::filesystem::create_directory(run);
  std::filesystem::create_symlink(outside, run + "/log.jsonl");
  EXPECT_THROW(observer_of("").start(run_of(run)), Error);
  std::filesystem::remove(run + "/log.jsonl");
  std::filesystem::create_hard_link(outside, run + "/log.jsonl");
  EXPECT_THROW(observer_of("").start(run_of(run)), Error);
  EXPECT_EQ(read_file(outside), "mine\n");
  observer_of(run + "/log.jsonl").start(run_of(run));
  EXPECT_EQ(lines_of(outside).size(), 2u);
}

TEST(JsonlObserver, LinesAreThereAtOnce) {
  const TempFolder folder;
  JsonlObserver observer = observer_of(folder / "log");
  observer.start(run_of(""));
  for (std::int64_t i = 1; i <= 5; ++i) {
    observer.step(step_of(i));
    EXPECT_EQ(lines_of(folder / "log").size(), static_cast<std::size_t>(i + 1));
  }
}

TEST(JsonlObserver, AResumeAppends) {
  const TempFolder folder;
  for (const std::int64_t first : {1, 2}) {
    JsonlObserver observer = observer_of(folder / "log");
    observer.start(run_of("", first));
    observer.step(step_of(first));
  }
  const std::vector<std::string> lines = lines_of(folder / "log");
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_NE(lines[2].find(R"("first_step":2)"), std::string::npos);
  EXPECT_NE(lines[3].find(R"("step":2)"), std::string::npos);
}

TEST(JsonlObserver, AnUnfinishedLineSpoilsNoOther) {
  const TempFolder folder;
  const std::string path = folder.write("log", "{\"type\":\"start\"}\n{\"type\":\"st");
  JsonlObserver observer = observer_of(path);
  observer.start(run_of(""));
  const std::vector<std::string> lines = lines_of(path);
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[1], "{\"type\":\"st");
  EXPECT_TRUE(lines[2].starts_with("{\"type\":\"start\",\"time\":"));
}

void expect_storage_error(const std::function<void()>& call, const std::string& fragment) {
  try {
    call();
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::storage) << error.what();
    EXPECT_NE(std::string(error.what()).find(fragment), std::string::npos) << error.what();
  }
}

// How many lines a log says it has lost, over all times it says so.
int lines_lost(const std::string& log) {
  const std::string mark = "\n{\"type\":\"lost\",\"lines\":";
  int lost = 0;
  for (std::size_t at = log.find(mark); at != std::string::npos; at = log.find(mark, at + 1))
    lost += std::atoi(log.c_str() + at + mark.size());
  return lost;
}

// A reader that pauses holds nobody up, and learns how many lines it has missed.
TEST(JsonlObserver, APipeThatNobodyReads) {
  const TempFolder folder;
  const std::string path = folder / "pipe";
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  const int reader = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  const std::string long_line(8000, 'x');
  LogFile log(path);
  for (int i = 0; i < 1000; ++i) log.append(long_line);
  std::string seen, piece(1 << 16, '\0');
  for (int tries = 0; tries < 100'000 && lines_lost(seen) < 900; ++tries) {
    for (ssize_t count; (count = ::read(reader, piece.data(), piece.size())) > 0;)
      seen.append(piece, 0, static_cast<std::size_t>(count));
    log.append("{}");
    ::usleep(1000);
  }
  ::close(reader);
  EXPECT_GE(lines_lost(seen), 900);
}

TEST(JsonlErrors, NameThePath) {
  const TempFolder folder;
  const std::string file = folder.write("file", "");
  const auto start = [](const std::string& path) { observer_of(path).start(run_of("")); };
  expect_storage_error([&] { start(folder.path()); }, folder.path() + ": the log cannot be opened");
  expect_storage_error([&] { start(file + "/log"); }, file + "/log: ");
  expect_storage_error([&] { start("/dev/full"); }, "/dev/full: the log cannot be written");
  expect_storage_error([&] { start(""); }, "the run has no folder");
}

TEST(JsonlErrors, TwoThatWriteOneLogAreRefused) {
  const TempFolder folder;
  const std::string path = folder / "log.jsonl";
  {
    LogFile first(path);
    first.append("{}");
    try {
      LogFile second(path);
      ADD_FAILURE() << "both write";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::bad_input);
      EXPECT_NE(std::string(error.what()).find(path + ": another observer or run writes into this log"),
                std::string::npos)
          << error.what();
    }
  }
  LogFile(path).append("{}");
  EXPECT_EQ(read_file(path), "{}\n{}\n");
}

TEST(JsonlErrors, ARecordBeforeTheStartIsABrokenPromise) {
  JsonlObserver observer = observer_of("unused");
  EXPECT_THROW(observer.step(step_of(1)), Error);
}

// A limit on the size of files stands in for a full disk.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  rlimit before_{};
  void (*handler_)(int);
};

TEST(JsonlErrors, AFullDiskIsToldAndTheNextLineIsWhole) {
  const TempFolder folder;
  const std::string path = folder / "log";
  JsonlObserver observer = observer_of(path);
  observer.start(run_of(""));
  const std::size_t before = read_file(path).size();
  {
    const FileSizeLimit limit(before + 20);
    expect_storage_error([&] { observer.step(step_of(1)); }, path + ": the log cannot be written");
  }
  EXPECT_EQ(read_file(path).size(), before + 20);
  observer.step(step_of(2));
  const std::vector<std::string> lines = lines_of(path);
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_TRUE(lines[2].starts_with("{\"type\":\"step\"") && lines[2].ends_with("}"));
}

}  // namespace
}  // namespace prun::jsonl
