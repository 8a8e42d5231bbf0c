"""The browser is a fixture of all tests of pages."""

from tests.web.browsing import browser as browser
