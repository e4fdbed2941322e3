// Uses what an installed Hookline has to bring: headers, code, and an exception across the border.
#include <hookline/hookline.hpp>
#include <iostream>

int main() {
  try {
    hookline::Dims(1000, 1);
  } catch (const hookline::InvalidArgument& error) {
    std::cout << HOOKLINE_VERSION << ": " << error.what() << '\n';
    return 0;
  }
  return 1;
}
