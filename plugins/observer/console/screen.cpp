// Uses a handful of control sequences.
#include "screen.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <charconv>
#include <cstdlib>

namespace prun::console {

namespace {

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

}  // namespace prun::console
