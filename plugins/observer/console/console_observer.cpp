// Composes the lines and decides when they appear.
#include "console_observer.hpp"

#include <algorithm>
#include <cmath>

#include "console_format.hpp"

namespace prun::console {

namespace {

constexpr double seconds_between_bars = 0.1;

std::string padded(std::string label) {
  label.resize(10, ' ');
  return label;
}

const char* label_of(EventKind kind) {
  switch (kind) {
    case EventKind::note: return "note: ";
    case EventKind::warning: return "warning: ";
    case EventKind::saved: return "saved: ";
    case EventKind::stopped: return "stopped: ";
    case EventKind::failed: return "failed: ";
  }
  return "";
}

Colour colour_of(EventKind kind) {
  switch (kind) {
    case EventKind::note: return Colour::none;
    case EventKind::warning:
    case EventKind::stopped: return Colour::yellow;
    case EventKind::saved: return Colour::green;
    case EventKind::failed: return Colour::red;
  }
  return Colour::none;
}

std::string with_folder(const RunInfo& info) {
  const std::string folder = first_line(info.folder.view());
  return first_line(info.name.view()) + (folder.empty() ? "" : " (" + folder + ")");
}

}  // namespace

ConsoleObserver::ConsoleObserver(const Options& options)
    : ConsoleObserver(options.integer("every"), screen_settings(1)) {}

ConsoleObserver::ConsoleObserver(std::int64_t every, const ScreenSettings& settings)
    : every_(every), screen_(settings) {
  PRUN_CHECK(every_ >= 1, "every = ", every_);
}

void ConsoleObserver::start(const RunInfo& info) {
  steps_ = info.steps;
  first_step_ = info.first_step;
  flops_per_token_ = info.flops_per_token;
  peak_flops_ = info.peak_flops;
  header(info);
}

void ConsoleObserver::header(const RunInfo& info) {
  const auto fact = [this](const char* label, const std::string& value) {
    screen_.line(padded(label) + value);
  };
  fact("run", with_folder(info));
  fact("recipe", first_line(info.recipe.view()));
  fact("device", first_line(info.device.view()));
  fact("model", scaled(static_cast<double>(info.parameters)) + " parameters (" +
                    std::to_string(info.parameters) + ")");
  fact("steps", std::to_string(info.first_step) + " to " + std::to_string(info.steps) + ", " +
                    std::to_string(info.tokens_per_step) + " tokens each");
  fact("plan", bytes_text(info.plan_bytes) + " (" + std::to_string(info.plan_bytes) + " bytes)");
  if (has_mfu())
    fact("mfu", "6 N + 6 layers heads head_dim seq per token, causal; of a peak of " +
                    scaled(peak_flops_ / 1e12) + " TFLOP/s");
}

void ConsoleObserver::step(const StepInfo& info) {
  times_.add(info.seconds);
  token_times_.add(info.seconds / static_cast<double>(info.tokens));
  if (info.exposed_seconds >= 0 && info.seconds > 0) exposed_share_ = info.exposed_seconds / info.seconds;
  for (const TallyInfo& tally : info.tallies)
    if (tally.name.view() == "clipped.share") clipped_share_ = tally.numbers.data[0];
  if (seen_++ == 0) first_loss_ = info.loss;
  last_ = info;
  last_shown_ = due(info);
  if (last_shown_)
    show(info);
  else if (info.elapsed - drawn_at_ >= seconds_between_bars)
    draw_bar();
}

bool ConsoleObserver::due(const StepInfo& info) const {
  return seen_ == 1 || info.step == steps_ || info.step % every_ == 0 || !info.kept;
}

void ConsoleObserver::show(const StepInfo& info) {
  screen_.line(line_of(info), info.kept ? Colour::none : Colour::yellow);
  show(info.losses);
  draw_bar();
}

void ConsoleObserver::show(const Array<EvaluatedLoss>& losses) {
  for (const EvaluatedLoss& one : losses)
    screen_.line("  " + std::string(one.name.view()) + " | loss " + fixed(one.loss, 4) + " | " +
                 std::to_string(one.targets) + " targets");
}

void ConsoleObserver::draw_bar() {
  if (!screen_.terminal() || !last_ || steps_ <= 0) return;
  const double share = static_cast<double>(last_->step) / static_cast<double>(steps_);
  screen_.bar(progress_bar(share, eta(), screen_.columns()));
  drawn_at_ = last_->elapsed;
}

std::string ConsoleObserver::line_of(const StepInfo& info) const {
  std::string line = "step " + std::to_string(info.step) + "/" + std::to_string(steps_) + " | loss " +
                     fixed(info.loss, 4) + " | grad " + gradient_norm(info.grad_norm) + " | lr " +
                     scientific(info.lr);
  if (info.loss_scale > 0) line += " | scale 2^" + fixed(std::log2(info.loss_scale), 0);
  if (info.seconds > 0) {
    const auto tokens = static_cast<double>(info.tokens);
    const double rate = tokens / info.seconds;
    line += " | " + scaled(rate) + " tok/s";
    if (has_mfu()) line += " | mfu " + fixed(100 * rate * flops_per_token_ / peak_flops_, 1) + "%";
    line += " | " + step_time(info.seconds);
    if (exposed_share_) line += " | comm " + fixed(100 * *exposed_share_, 1) + "%";
    if (info.watts > 0)
      line += " | " + fixed(info.watts, 0) + " W " + fixed(1e3 * info.joules / tokens, 2) + " mJ/tok";
  }
  return line + " | eta " + eta() + (info.kept ? "" : " | update skipped");
}

std::string ConsoleObserver::eta() const {
  if (times_.empty() || !last_) return "?";
  return duration(times_.recent_median() * static_cast<double>(steps_ - last_->step));
}

void ConsoleObserver::evaluation(const EvaluationInfo& info) {
  screen_.line("step " + std::to_string(info.step) + "/" + std::to_string(steps_) + " | eval loss " +
               fixed(info.loss, 4) +
               (info.averaged ? " | of the average " + fixed(info.averaged_loss, 4) : "") + " | " +
               std::to_string(info.targets) + " targets | " + step_time(info.seconds));
  show(info.sets);
  draw_bar();
}

void ConsoleObserver::event(EventKind kind, std::string_view message) {
  if (kind == EventKind::stopped) outcome_ = "stopped";
  if (kind == EventKind::failed) outcome_ = "failed";
  if (outcome_ != "done") screen_.settle();  // makes room for why the run ends
  screen_.line(label_of(kind) + printable(message, "  "), colour_of(kind));
  if (outcome_ == "done") draw_bar();
}

// Prints the memory of the rank that used most.
void ConsoleObserver::memory(const FinishInfo& info) {
  const auto most =
      std::max_element(info.memory.begin(), info.memory.end(),
                       [](const RankMemory& a, const RankMemory& b) { return a.peak_bytes < b.peak_bytes; });
  if (most == info.memory.end() || most->peak_bytes == 0) return;
  const std::string whose =
      info.memory.size > 1 ? " of rank " + std::to_string(most - info.memory.begin()) : "";
  screen_.line("memory: peak " + bytes_text(most->peak_bytes) + whose + ", planned " +
               bytes_text(most->plan_bytes) + " and " + bytes_text(most->process_bytes) + " for the process");
  if (most->device_bytes > 0)
    screen_.line("device: " + bytes_text(most->device_bytes) + " in use, planned " +
                 bytes_text(most->device_plan_bytes) + " and " + bytes_text(most->device_process_bytes) +
                 " for context, libraries and communicators");
}

void ConsoleObserver::finish(const FinishInfo& info) {
  screen_.settle();
  screen_.remove_bar();
  memory(info);
  if (!last_) {
    const bool were_run = outcome_ == "done" && first_step_ > steps_;
    screen_.line(
        outcome_ + ": no step ran" +
        (were_run ? ", since " + std::to_string(steps_) + " are behind it; a larger run.steps goes on" : ""));
    return;
  }
  if (!last_shown_) screen_.line(line_of(*last_));
  std::string summary = outcome_ + ": " + std::to_string(seen_) + (seen_ == 1 ? " step in " : " steps in ") +
                        duration(last_->elapsed) + " | loss " + fixed(first_loss_, 4) + " to " +
                        fixed(last_->loss, 4);
  if (clipped_share_) summary += " | norm over clip in " + fixed(100 * *clipped_share_, 0) + "% of steps";
  if (!token_times_.empty()) summary += " | " + scaled(1 / token_times_.median()) + " tok/s median";
  screen_.line(summary);
}

}  // namespace prun::console
