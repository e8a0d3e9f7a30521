#include "wandb_observer.hpp"

#include <unistd.h>

#include <array>
#include <chrono>
#include <ctime>
#include <filesystem>
#include <random>
#include <system_error>

#include "prun/error.hpp"
#include "prun/json_writer.hpp"

namespace prun::wandb {
namespace {

namespace fs = std::filesystem;

double now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// Makes an id in wandb's form; each process of a run has one of its own, and the run is their group.
std::string new_id() {
  constexpr std::string_view letters = "0123456789abcdefghijklmnopqrstuvwxyz";
  std::random_device random;
  std::uniform_int_distribution<std::size_t> letter(0, letters.size() - 1);
  std::string id;
  while (id.size() < 8) id += letters[letter(random)];
  return id;
}

std::string host_name() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

// Returns "offline-run-20261126_061548-qxudysp0", by which `wandb sync` finds it.
std::string folder_name(double time, const std::string& id) {
  const auto seconds = static_cast<std::time_t>(time);
  std::tm parts{};
  ::gmtime_r(&seconds, &parts);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y%m%d_%H%M%S", &parts);
  return std::string("offline-run-") + text.data() + "-" + id;
}

RunFacts facts_of(const RunInfo& info, const std::string& id, const std::string& project, double time) {
  RunFacts facts{id,   project, std::string(info.name.view()), std::string(info.name.view()), host_name(),
                 time, {}};
  const auto number = [&](const char* key, double value) { facts.config.emplace_back(key, json_of(value)); };
  const auto text = [&](const char* key, Text value) {
    facts.config.emplace_back(key,
                              JsonWriter(NonFinite::refuse, BrokenText::replace).value(value.view()).take());
  };
  text("recipe", info.recipe);
  text("folder", info.folder);
  text("device", info.device);
  number("steps", static_cast<double>(info.steps));
  number("first_step", static_cast<double>(info.first_step));
  number("parameters", static_cast<double>(info.parameters));
  number("tokens_per_step", static_cast<double>(info.tokens_per_step));
  return facts;
}

}  // namespace

WandbObserver::WandbObserver(const Options& options)
    : path_(options.text("path")), project_(options.text("project")) {}

void WandbObserver::start(const RunInfo& info) {
  begin_ = now();
  const std::string id = new_id();
  const fs::path within =
                     path_.empty() ? fs::path(std::string(info.folder.view())) / "wandb" : fs::path(path_),
                 folder = within / folder_name(begin_, id);
  std::error_code error;
  fs::create_directories(folder, error);
  if (error)
    throw_error(ErrorCode::storage, folder.string(), ": the folder for wandb cannot be made (",
                error.message(), "); give [[observer]] plugin = \"wandb\" another path");
  log_.emplace((folder / ("run-" + id + ".wandb")).string());
  log_->add(header_record(++records_));
  log_->add(run_record(++records_, facts_of(info, id, project_, begin_)));
  rates_ = {info.flops_per_token, info.peak_flops};
}

void WandbObserver::write_row() {
  if (row_.empty()) return;
  const double time = now();
  row_.push_back({"_step", static_cast<double>(step_)});
  row_.push_back({"_timestamp", time});
  row_.push_back({"_runtime", time - begin_});
  log_->add(history_record(++records_, step_, row_));
  log_->add(summary_record(++records_, row_));
  row_.clear();
}

void WandbObserver::add(std::int64_t step, const Scalars& scalars) {
  PRUN_CHECK(log_, "a record before the run has started");
  if (step != step_) write_row();
  step_ = step;
  row_.insert(row_.end(), scalars.begin(), scalars.end());
}

void WandbObserver::step(const StepInfo& info) { add(info.step, scalars_of(info, rates_)); }

void WandbObserver::evaluation(const EvaluationInfo& info) { add(info.step, scalars_of(info)); }

// Nothing is written behind a failure.
void WandbObserver::event(EventKind kind, std::string_view) {
  if (log_ && kind == EventKind::failed) end(true);
}

void WandbObserver::finish(const FinishInfo& info) {
  if (!log_) return;
  add(step_, scalars_of(info));
  end(false);
}

void WandbObserver::end(bool failed) {
  write_row();
  log_->add(exit_record(++records_, failed, now() - begin_));
  log_.reset();
}

}  // namespace prun::wandb
