// Where lines go: plain text to a file or pipe; on a terminal also a bar below the last line, redrawn in
// place.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace prun::console {

struct ScreenSettings {
  int descriptor = 1;
  bool terminal = false;       // draw a bar
  bool colour = false;         // without meaning when no terminal
  std::optional<int> columns;  // fixed width; else the terminal's own, asked at each drawing
};

// Standard output as it is: isatty, TERM, COLUMNS, NO_COLOR.
ScreenSettings screen_settings(int descriptor);

enum class Colour { none, green, yellow, red };

class Screen {
 public:
  explicit Screen(const ScreenSettings& settings) : settings_(settings) {}
  ~Screen();
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  bool terminal() const { return settings_.terminal; }
  int columns() const;
  // One write(2) each. They throw storage when standard output cannot be written.
  void line(std::string_view text, Colour colour = Colour::none);  // leaves no bar: draw it again
  void bar(std::string_view text);
  void remove_bar();

 private:
  std::string painted(std::string_view text, Colour colour) const;
  std::string without_bar();  // what erases the bar, if there is one

  ScreenSettings settings_;
  bool bar_shown_ = false;
};

}  // namespace prun::console
