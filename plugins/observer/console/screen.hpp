// Prints lines: as plain text to a file or pipe; on a terminal also with a bar below the last line, redrawn
// in place.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "outlet.hpp"

namespace prun::console {

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

}  // namespace prun::console
