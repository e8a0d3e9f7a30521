// Shows a run to a person: facts first, then a line for each step, a summary last.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "outlet.hpp"
#include "prun/observer.hpp"

namespace prun::console {

// ------------------------------------------------------------------- screen
// Prints lines: as plain text to a file or pipe; on a terminal also with a bar below the last line, redrawn
// in place.

struct ScreenSettings {
  int descriptor = 1;
  bool terminal = false;       // says to draw a bar
  bool colour = false;         // means nothing without a terminal
  std::optional<int> columns;  // fixes the width; else it is the terminal's own, asked at each drawing
};

// Describes standard output as it is: isatty, TERM, COLUMNS, NO_COLOR.
ScreenSettings screen_settings(int descriptor);

enum class Colour { none, green, yellow, red };

class Screen {
 public:
  explicit Screen(const ScreenSettings& settings)
      : settings_(settings), outlet_(settings.descriptor, "standard output") {}
  ~Screen();
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  bool terminal() const { return settings_.terminal; }
  int columns() const;
  // These never wait: lines that find no room are counted, and the count is shown once there is room again.
  // They throw storage when standard output is a file that cannot be written.
  void line(std::string_view text, Colour colour = Colour::none);  // leaves no bar: draw it again
  void bar(std::string_view text);
  void remove_bar();
  // Waits a little for text that is on its way.
  void settle() { outlet_.settle(); }

 private:
  std::string painted(std::string_view text, Colour colour) const;
  std::string erased_bar() const;  // erases the bar, if there is one
  std::string lost_lines() const;  // says how many lines found no room

  ScreenSettings settings_;
  observer::Outlet outlet_;
  bool bar_shown_ = false;
  std::int64_t lost_ = 0;
};

// ------------------------------------------------------------------- step times
// Computes medians of step times: one slow step (a first step, a save) must not move an estimate.

class StepTimes {
 public:
  // Times that are not positive and finite are left out.
  void add(double seconds);
  bool empty() const { return times_.empty(); }
  // These return the median of the last 101 steps and of all; for an even number it is the mean of the middle
  // two. They must not be called when there are no times.
  double recent_median() const;
  double median() const;

 private:
  std::vector<float> times_;  // takes 4 bytes a step
};

// ------------------------------------------------------------------- console observer

class ConsoleObserver final : public Observer {
 public:
  explicit ConsoleObserver(const Options& options);
  ConsoleObserver(std::int64_t every, const ScreenSettings& settings);

  void start(const RunInfo& info) override;
  // Prints a line for the first and the last step, for every `every`-th, and for each whose update was
  // skipped.
  void step(const StepInfo& info) override;
  void evaluation(const EvaluationInfo& info) override;
  void event(EventKind kind, std::string_view message) override;
  void finish(const FinishInfo& info) override;

 private:
  void header(const RunInfo& info);
  bool due(const StepInfo& info) const;
  void show(const StepInfo& info);
  void show(const Array<EvaluatedLoss>& losses);
  void draw_bar();
  std::string line_of(const StepInfo& info) const;
  std::string eta() const;
  void memory(const FinishInfo& info);
  bool has_mfu() const { return flops_per_token_ > 0 && peak_flops_ > 0; }

  std::int64_t every_;
  Screen screen_;
  StepTimes times_, token_times_;
  std::int64_t steps_ = 0, first_step_ = 1;
  double flops_per_token_ = 0;
  double peak_flops_ = 0;
  std::int64_t seen_ = 0;
  double first_loss_ = 0;
  std::optional<StepInfo> last_;
  std::optional<double> exposed_share_;  // that of the step that was measured last
  std::optional<double> clipped_share_;  // share of steps whose norm was over optimizer.clip
  bool last_shown_ = false;
  double drawn_at_ = 0;  // StepInfo::elapsed when the bar was last drawn
  std::string outcome_ = "done";
};

// ------------------------------------------------------------------- console format
// Writes numbers and lines as a person reads them. The functions are pure; nothing here knows of a terminal.

std::string fixed(double value, int digits);  // "3.2141", "nan"
std::string scaled(double value);             // "812", "20.2k", "1.53M"
std::string bytes_text(std::int64_t bytes);   // "512 B", "12.3 GiB"
std::string duration(double seconds);         // "45s", "12m04s", "3h07m", "2d05h"
std::string step_time(double seconds);        // "4.21 ms", "812 ms", "12.3 s"
std::string scientific(double value);         // "3.00e-04"
std::string gradient_norm(double value);      // "0.98", "1.25e-05"

// A line end is followed by `indent`; a character that is no letter is written out, as prun/visible.hpp says:
// text of others cannot move the cursor.
std::string printable(std::string_view text, std::string_view indent);
std::string first_line(std::string_view text);

// Returns "[=====>     ]  42% | eta 12m04s", in less than `columns` letters; it is empty when that is too
// narrow to say anything.
std::string progress_bar(double share, std::string_view eta, int columns);

}  // namespace prun::console
