// Composes the lines and decides when they appear.
#include "console_observer.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "prun/error.hpp"
#include "prun/visible.hpp"

namespace prun::console {
namespace {

// ------------------------------------------------------------------- screen
// Uses a handful of control sequences.

constexpr int usual_columns = 80;
constexpr std::string_view erase_line = "\r\033[K";

std::string_view environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

std::optional<int> columns_from_environment() {
  const std::string_view text = environment("COLUMNS");
  int columns = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), columns);
  if (error != std::errc{} || end != text.data() + text.size() || columns <= 0) return std::nullopt;
  return columns;
}

}  // namespace

ScreenSettings screen_settings(int descriptor) {
  ScreenSettings settings;
  settings.descriptor = descriptor;
  settings.terminal = ::isatty(descriptor) == 1 && environment("TERM") != "dumb";
  settings.colour = settings.terminal && environment("NO_COLOR").empty();
  settings.columns = columns_from_environment();
  return settings;
}

Screen::~Screen() {
  try {
    outlet_.put(erased_bar() + lost_lines());
  } catch (const std::exception&) {
    // Only a bar is left behind; there is nobody to tell while the run unwinds.
  }
}

int Screen::columns() const {
  if (settings_.columns) return *settings_.columns;
  winsize size{};
  const bool known = ::ioctl(settings_.descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : usual_columns;
}

void Screen::line(std::string_view text, Colour colour) {
  if (!outlet_.put(erased_bar() + lost_lines() + painted(text, colour) + "\n")) {
    ++lost_;
    return;
  }
  bar_shown_ = false;
  lost_ = 0;
}

// A bar that would have to wait would be out of date when it is seen.
void Screen::bar(std::string_view text) {
  if (settings_.terminal && outlet_.idle() && outlet_.put(erased_bar() + painted(text, Colour::green)))
    bar_shown_ = !text.empty();
}

void Screen::remove_bar() {
  if (outlet_.put(erased_bar())) bar_shown_ = false;
}

std::string Screen::painted(std::string_view text, Colour colour) const {
  if (!settings_.colour || colour == Colour::none || text.empty()) return std::string(text);
  const char* code = colour == Colour::green    ? "\033[32m"
                     : colour == Colour::yellow ? "\033[33m"
                                                : "\033[31m";
  return code + std::string(text) + "\033[0m";
}

std::string Screen::erased_bar() const { return bar_shown_ ? std::string(erase_line) : ""; }

std::string Screen::lost_lines() const {
  if (lost_ == 0) return "";
  return "(" + std::to_string(lost_) + (lost_ == 1 ? " line is" : " lines are") +
         " not shown: nobody read in time)\n";
}

namespace {

// ------------------------------------------------------------------- step times
// Finds the median by selection, not sorting.

constexpr std::size_t recent_steps = 101;

double median_of(std::vector<float> times) {
  PRUN_CHECK(!times.empty(), "a median of no step times");
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  if (times.size() % 2 == 1) return *middle;
  return (static_cast<double>(*std::max_element(times.begin(), middle)) + *middle) / 2;
}

}  // namespace

void StepTimes::add(double seconds) {
  if (std::isfinite(seconds) && seconds > 0) times_.push_back(static_cast<float>(seconds));
}

double StepTimes::recent_median() const {
  const std::size_t count = std::min(recent_steps, times_.size());
  return median_of({times_.end() - static_cast<std::ptrdiff_t>(count), times_.end()});
}

double StepTimes::median() const { return median_of(times_); }

namespace {

// ------------------------------------------------------------------- console format
// Uses printf, with a format chosen by magnitude.

template <class... Values>
std::string format(const char* pattern, Values... values) {
  std::array<char, 400> text;
  const int size = std::snprintf(text.data(), text.size(), pattern, values...);
  return std::string(text.data(),
                     std::min<std::size_t>(text.size() - 1, size < 0 ? 0u : static_cast<unsigned>(size)));
}

// Writes three significant digits: 1.53, 20.2, 812.
std::string three_digits(double value) { return fixed(value, value < 9.995 ? 2 : value < 99.95 ? 1 : 0); }

}  // namespace

std::string fixed(double value, int digits) { return format("%.*f", digits, value); }

std::string scientific(double value) { return format("%.2e", value); }

std::string scaled(double value) {
  constexpr std::array<const char*, 5> units = {"", "k", "M", "G", "T"};
  std::size_t unit = 0;
  for (; value >= 999.5 && unit + 1 < units.size(); ++unit) value /= 1000;
  return three_digits(value) + units[unit];
}

std::string bytes_text(std::int64_t bytes) {
  constexpr std::array<const char*, 5> units = {" B", " KiB", " MiB", " GiB", " TiB"};
  if (bytes < 1024) return std::to_string(bytes) + units[0];
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; value >= 1023.5 && unit + 1 < units.size(); ++unit) value /= 1024;
  return three_digits(value) + units[unit];
}

std::string duration(double seconds) {
  if (!(seconds >= 0 && seconds < 1e12)) return "?";
  const auto whole = static_cast<long long>(std::llround(seconds));
  if (whole < 60) return format("%llds", whole);
  if (whole < 3600) return format("%lldm%02llds", whole / 60, whole % 60);
  if (whole < 86400) return format("%lldh%02lldm", whole / 3600, whole / 60 % 60);
  return format("%lldd%02lldh", whole / 86400, whole / 3600 % 24);
}

std::string step_time(double seconds) {
  if (seconds < 9.9995) return three_digits(seconds * 1000) + " ms";
  return fixed(seconds, seconds < 99.95 ? 1 : 0) + " s";
}

std::string gradient_norm(double value) {
  const double size = std::abs(value);
  const bool tiny_or_huge = size != 0 && (size < 0.01 || size >= 10000);
  return format(std::isfinite(value) && tiny_or_huge ? "%.2e" : "%.2f", value);
}

std::string printable(std::string_view text, std::string_view indent) {
  while (text.ends_with('\n')) text.remove_suffix(1);
  std::string out;
  for (const char c : visible_lines(text)) {
    out += c;
    if (c == '\n') out += indent;
  }
  return out;
}

std::string first_line(std::string_view text) { return printable(text.substr(0, text.find('\n')), ""); }

std::string progress_bar(double share, std::string_view eta, int columns) {
  constexpr int widest = 60;
  constexpr int narrowest = 5;
  share = std::clamp(std::isfinite(share) ? share : 0.0, 0.0, 1.0);
  const std::string tail = format("] %3d%% | eta ", static_cast<int>(share * 100)) + std::string(eta);
  // The last column stays free: writing to it makes some terminals begin a new line.
  const int cells = std::min(widest, columns - 2 - static_cast<int>(tail.size()));
  if (cells < narrowest) return "";
  const int done = static_cast<int>(share * cells);
  std::string bar = "[" + std::string(static_cast<std::size_t>(done), '=');
  if (done < cells) bar += '>';
  bar.resize(static_cast<std::size_t>(cells) + 1, ' ');
  return bar + tail;
}

namespace {

// ------------------------------------------------------------------- console observer

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
               fixed(info.loss, 4) + " | " + std::to_string(info.targets) + " targets | " +
               step_time(info.seconds));
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
