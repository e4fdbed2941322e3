// The one place where fmt's functions are compiled: every other file sees their declarations alone.
#include <fmt/format-inl.h>

namespace fmt::detail {

// What fmt declares as instantiated elsewhere; of what it takes to be so without saying it, what our files need.
template auto thousands_sep_impl<char>(locale_ref) -> thousands_sep_result<char>;
template auto decimal_point_impl(locale_ref) -> char;
template void buffer<char>::append(const char*, const char*);
template void vformat_to(buffer<char>&, string_view, basic_format_args<buffer_context<char>>, locale_ref);
template auto dragonbox::to_decimal(float) noexcept -> dragonbox::decimal_fp<float>;
template auto dragonbox::to_decimal(double) noexcept -> dragonbox::decimal_fp<double>;

}  // namespace fmt::detail
